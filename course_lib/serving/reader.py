"""Reader that loads a FasterTransformer folder, for any number of ranks, as a Hugging Face model and its prefixes.

The reader merges the parts from all ranks. Settings that the format cannot store (activation, epsilon, rotary embedding
base) are in conversion.json. FasterTransformer's own converters do not write this file; without it, the reader uses the
model family's defaults. `Loaded.notes` lists where the model may differ from its source.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import nextafter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoXConfig

from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import CourseError, one_line
from course_lib.models.gpt2 import GPT2
from course_lib.models.gpt_neox import GPT_NEOX, rope_parameters
from course_lib.serving import ini, layout, weight_map
from course_lib.serving.layout import CONVERSION, TOKENIZER, Family, FtConfig, TensorSpec

Reading = Callable[[TensorSpec], list[Tensor]]
# Settings that the format cannot store, with the defaults for each model family
LACKS: dict[Family, dict[str, Any]] = {
    "gptneox": {"hidden_act": "gelu", "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 2048},
    "gpt": {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
}


@dataclass(frozen=True)
class Loaded:
    """A model, its prefixes, its configuration and its tokenizer."""

    model: Any  # GPTNeoXForCausalLM or GPT2LMHeadModel, frozen, in eval mode
    prefixes: list[Tensor | None]  # [P, L·2·H] per task, in task order; None for a task without a prefix
    config: FtConfig
    tokenizer: Path | None  # folder
    notes: list[str]


def load(folder: Path, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> Loaded:
    """Load the model and prefixes from a FasterTransformer folder.

    Args:
        folder: DIR or DIR/N-gpu.
        dtype: data type of the model; the default is the stored dtype.
        device: device for the model and prefixes.

    Raises:
        CourseError: if the folder is damaged.
    """
    weights_folder, ranks = layout.find(folder)
    config, notes = ini.read(weights_folder, ranks)
    if refused := layout.uneven(config):
        raise CourseError(f"{weights_folder}: {refused}")
    parent = weights_folder.resolve().parent
    conversion = read_conversion(parent / CONVERSION)
    wanted = dtype or TORCH[config.dtype]

    def read(spec: TensorSpec) -> list[Tensor]:
        return [part.to(device, wanted) for part in read_parts(weights_folder, spec, config)]

    weights = {
        name: weight_map.restored(read(piece.spec), piece, config) for name, piece in weight_map.pieces(config).items()
    }
    notes += _whole_biases(weights, config, conversion.get("biases_divided_by"), read)
    lacks = LACKS[config.family] | settings_in_ini(config) | conversion.get("not_in_the_format", {})
    if not conversion:
        notes.append(f"no {CONVERSION}: read with {', '.join(f'{key} {value}' for key, value in lacks.items())}")
    try:
        model = _build(config, lacks, weights, device)
    # A setting for this model family is missing from conversion.json or has an invalid value
    except (KeyError, TypeError, ValueError) as error:
        raise CourseError(f"{parent / CONVERSION}: {one_line(error)}") from error
    prefixes = [
        weight_map.prefix_values(read(layout.prefix(config, task))) if task.length else None for task in config.tasks
    ]
    tokenizer = parent / TOKENIZER
    return Loaded(model, prefixes, config, tokenizer if tokenizer.is_dir() else None, notes)


def settings_in_ini(config: FtConfig) -> dict[str, Any]:
    """Return the settings in a GPT-2 model's config.ini that override the model family's defaults."""
    names = {"gelu": "gelu_new", "relu": "relu"}
    settings: dict[str, Any] = {} if config.layernorm_eps is None else {"layer_norm_epsilon": config.layernorm_eps}
    if config.activation is not None:
        if config.activation.lower() not in names:
            raise CourseError(f"config.ini: activation_type = {config.activation}: allowed: Gelu, Relu")
        settings["activation_function"] = names[config.activation.lower()]
    return settings


def read_conversion(path: Path) -> dict[str, Any]:
    """Return the content of conversion.json, or an empty dict without it. Raises CourseError if it is damaged."""
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
    except ValueError as error:
        raise CourseError(f"{path}: not readable as JSON: {error}") from error
    known = isinstance(content, dict) and isinstance(content.get("not_in_the_format", {}), dict)
    if not known or not isinstance(content.get("biases_divided_by", 1), int):
        raise CourseError(f"{path}: not written by `course ft export`")
    return content


def numbers(path: Path, dtype: NumberFormat) -> Tensor:
    """Return the numbers in a file as a flat tensor."""
    return torch.from_numpy(np.fromfile(path, np.uint8)).view(TORCH[dtype])


def read_parts(folder: Path, spec: TensorSpec, config: FtConfig) -> list[Tensor]:
    """Return the parts of a tensor, one per file.

    Raises CourseError if a file is missing or has the wrong size.
    """
    shape, parts = spec.part(config.ranks), []
    for name in spec.files(config.ranks):
        path = folder / name
        if not path.is_file():
            raise CourseError(f"{path}: no such file")
        if (size := path.stat().st_size) != spec.size(config):
            raise CourseError(
                f"{path}: {size:,} bytes, expected {spec.size(config):,} ({list(shape)} of {config.dtype})"
            )
        parts.append(numbers(path, config.dtype).view(shape))
    return parts


def _whole_biases(weights: dict[str, Tensor], config: FtConfig, divided: int | None, read: Reading) -> list[str]:
    """Set the two biases of row-parallel products to the total that the engine adds, and return notes for the user.

    With parallel residual, every rank adds the sum of both biases, so the total is N times the stored sum. The reader
    puts this total into the second bias and sets the first to zero. Otherwise, the engine adds each bias once as
    stored, even though FasterTransformer's converter also divides the biases by N in this case.

    Args:
        weights: the model's weights, identified by their short names; modified in place.
        config: the folder's configuration.
        divided: the divisor recorded in conversion.json, or None if there is none.
        read: function that returns the parts of a tensor.
    """
    for layer in range(config.layers):
        attention, mlp = (f"layers.{layer}.{name}.bias" for name in ("attention.dense", "mlp.dense_4h_to_h"))
        if config.parallel_residual:
            total = read(TensorSpec(f"model.layers.{layer}.mlp.attention.bias.sum", (config.hidden,)))[0]
            weights[attention], weights[mlp] = torch.zeros_like(total), total * config.ranks
        elif config.family == "gptneox" and divided:
            weights[attention] *= divided
            weights[mlp] *= divided
    if config.family == "gptneox" and not config.parallel_residual and config.ranks > 1 and divided is None:
        return [
            "FasterTransformer's converter divides attention.dense.bias and mlp.dense_4h_to_h.bias "
            f"by N = {config.ranks}; the engine adds them as stored, and so does this model"
        ]
    return []


def _build(config: FtConfig, lacks: dict[str, Any], weights: dict[str, Tensor], device: torch.device | str) -> Any:
    """Return a model that uses these weights without copying them."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(hf_config(config, lacks))
    base = model.base_model_prefix
    named = {name if name.startswith("lm_head") else f"{base}.{name}": tensor for name, tensor in weights.items()}
    model.load_state_dict(named, assign=True, strict=config.head)
    model.tie_weights()
    # The rotary frequencies are not stored as weights, so compute them again, in fp32
    if config.family == "gptneox":
        model.gpt_neox.rotary_emb = type(model.gpt_neox.rotary_emb)(model.config).to(device)
    return model.requires_grad_(False).eval()


def hf_config(config: FtConfig, lacks: dict[str, Any]) -> Any:
    """Return the Hugging Face configuration; `lacks` contains the settings that config.ini does not store."""
    settings: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden,
        "num_layers": config.layers,
        "num_attention_heads": config.heads,
        "ffn_hidden_size": config.inter_size,
        "bos_token_id": config.start_id,
        "eos_token_id": config.end_id,
    }
    if config.family == "gpt":
        settings |= {"max_position_embeddings": config.positions, "tie_word_embeddings": not config.head}
        return GPT2Config(**GPT2.renamed(settings), **_picked(lacks, "activation_function", "layer_norm_epsilon"))
    share = config.rotary / config.head_size
    if int(config.head_size * share) != config.rotary:
        share = nextafter(share, 1.0)
    settings |= {
        "use_parallel_residual": config.parallel_residual,
        "rope_parameters": rope_parameters(share, lacks["rope_theta"]),
        "tie_word_embeddings": False,
    }
    more = _picked(lacks, "hidden_act", "layer_norm_eps", "max_position_embeddings")
    return GPTNeoXConfig(**GPT_NEOX.renamed(settings), **more)


def _picked(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: values[key] for key in keys}
