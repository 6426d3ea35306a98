"""A FasterTransformer folder as a Hugging Face model and its prefixes, for any number of ranks, from nothing but the folder.

The parts of all ranks are merged. What the format has no place for (activation, epsilon, base of the rotation) is in conversion.json; a
folder of the original's converters has none, and is read with the family's defaults. What was read otherwise than it stands is in `notes`.
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
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

from course_lib.errors import CourseError
from course_lib.serving import ini, layout, weight_map
from course_lib.serving.layout import CONVERSION, TOKENIZER, Family, FtConfig, TensorSpec
from course_lib.serving.weight_map import TORCH

Reading = Callable[[TensorSpec], list[Tensor]]
LACKS: dict[Family, dict[str, Any]] = {  # what the format has no place for, and the family's default
    "gptneox": {"hidden_act": "gelu", "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 2048},
    "gpt": {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
}


@dataclass(frozen=True)
class Loaded:
    """A model and what belongs to it."""

    model: Any  # GPTNeoXForCausalLM or GPT2LMHeadModel, frozen, in eval mode
    prefixes: list[Tensor | None]  # [P, L·2·H] per task, in the order of tasks; None for one without a prefix
    config: FtConfig
    tokenizer: Path | None  # folder
    notes: list[str]


def load(folder: Path, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> Loaded:
    """The model and the prefixes of a folder, in `dtype` (default: as stored). Raises CourseError for a damaged folder."""
    place, ranks = layout.find(folder)
    config, notes = ini.read(place, ranks)
    if refused := layout.uneven(config):
        raise CourseError(f"{place}: {refused}")
    outside = place.resolve().parent
    conversion = read_conversion(outside / CONVERSION)
    wanted = dtype or TORCH[config.dtype]

    def read(spec: TensorSpec) -> list[Tensor]:
        return [part.to(device, wanted) for part in read_parts(place, spec, config)]

    weights = {
        name: weight_map.restored(read(piece.spec), piece, config) for name, piece in weight_map.pieces(config).items()
    }
    notes += _whole_biases(weights, config, conversion.get("biases_divided_by"), read)
    lacks = LACKS[config.family] | _in_the_ini(config) | conversion.get("not_in_the_format", {})
    if not conversion:
        notes.append(f"no {CONVERSION}: read with {', '.join(f'{key} {value}' for key, value in lacks.items())}")
    try:
        model = _build(config, lacks, weights, device)
    except (KeyError, TypeError, ValueError) as error:  # what conversion.json says is no setting of such a model
        raise CourseError(f"{outside / CONVERSION}: {' '.join(str(error).split())[:300]}") from error
    prefixes = [
        weight_map.prefix_values(read(layout.prefix(config, task))) if task.length else None for task in config.tasks
    ]
    tokenizer = outside / TOKENIZER
    return Loaded(model, prefixes, config, tokenizer if tokenizer.is_dir() else None, notes)


def _in_the_ini(config: FtConfig) -> dict[str, Any]:
    """What config.ini of a GPT-2 says where the family has a default."""
    names = {"gelu": "gelu_new", "relu": "relu"}
    found: dict[str, Any] = {} if config.layernorm_eps is None else {"layer_norm_epsilon": config.layernorm_eps}
    if config.activation is not None:
        if config.activation.lower() not in names:
            raise CourseError(f"config.ini: activation_type = {config.activation}: allowed: Gelu, Relu")
        found["activation_function"] = names[config.activation.lower()]
    return found


def read_conversion(path: Path) -> dict[str, Any]:
    """conversion.json, empty if there is none. Raises CourseError for one that is damaged."""
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


def read_parts(folder: Path, spec: TensorSpec, config: FtConfig) -> list[Tensor]:
    """What the files of a tensor hold. Raises CourseError for one that is missing or has another size."""
    shape, found = spec.part(config.ranks), []
    for name in spec.files(config.ranks):
        path = folder / name
        if not path.is_file():
            raise CourseError(f"{path}: no such file")
        if (size := path.stat().st_size) != spec.size(config):
            raise CourseError(
                f"{path}: {size:,} bytes, expected {spec.size(config):,} ({list(shape)} of {config.dtype})"
            )
        found.append(torch.from_numpy(np.fromfile(path, np.uint8)).view(TORCH[config.dtype]).view(shape))
    return found


def _whole_biases(weights: dict[str, Tensor], config: FtConfig, divided: int | None, read: Reading) -> list[str]:
    """Puts in the two biases behind each row-parallel product as the engine adds them; returns what is to be said.

    With parallel residual every rank adds their sum, so the whole is N times the file. Without, it is added once, as it is: but the
    original's converter has divided by N there too. `divided` is what conversion.json says it was divided by.
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
            f"the original's converter divides attention.dense.bias and mlp.dense_4h_to_h.bias by N = {config.ranks}, the engine adds them as they are: so does this model"
        ]
    return []


def _build(config: FtConfig, lacks: dict[str, Any], weights: dict[str, Tensor], device: torch.device | str) -> Any:
    """The model with these weights, which are not copied."""
    with torch.device("meta"):
        model = (
            GPT2LMHeadModel(_gpt2(config, lacks))
            if config.family == "gpt"
            else GPTNeoXForCausalLM(_neox(config, lacks))
        )
    base = model.base_model_prefix
    named = {name if name.startswith("lm_head") else f"{base}.{name}": tensor for name, tensor in weights.items()}
    model.load_state_dict(named, assign=True, strict=config.head)
    model.tie_weights()
    if config.family == "gptneox":  # angles are no weight: they are computed anew, in fp32
        model.gpt_neox.rotary_emb = type(model.gpt_neox.rotary_emb)(model.config).to(device)
    return model.requires_grad_(False).eval()


def _neox(config: FtConfig, lacks: dict[str, Any]) -> GPTNeoXConfig:
    share = config.rotary / config.head_size
    if int(config.head_size * share) != config.rotary:
        share = nextafter(share, 1.0)
    return GPTNeoXConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.inter_size,
        hidden_act=lacks["hidden_act"],
        layer_norm_eps=lacks["layer_norm_eps"],
        max_position_embeddings=lacks["max_position_embeddings"],
        use_parallel_residual=config.parallel_residual,
        rope_parameters={
            "rope_type": "default", "rope_theta": lacks["rope_theta"], "partial_rotary_factor": share,
        },
        tie_word_embeddings=False,
        bos_token_id=config.start_id,
        eos_token_id=config.end_id,
    )  # fmt: skip


def _gpt2(config: FtConfig, lacks: dict[str, Any]) -> GPT2Config:
    return GPT2Config(
        vocab_size=config.vocab_size,
        n_positions=config.positions,
        n_embd=config.hidden,
        n_layer=config.layers,
        n_head=config.heads,
        n_inner=config.inter_size,
        activation_function=lacks["activation_function"],
        layer_norm_epsilon=lacks["layer_norm_epsilon"],
        tie_word_embeddings=not config.head,
        bos_token_id=config.start_id,
        eos_token_id=config.end_id,
    )
