"""Reader that loads a FasterTransformer folder, for any number of ranks, as a Hugging Face model and its prefixes.

Settings that the format cannot store are in conversion.json; without it, the reader uses the model family's defaults,
and adds the biases of row-parallel products as stored, like the engine.
"""

from collections.abc import Iterator
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
from course_lib.errors import CourseError
from course_lib.models.families import GPT2, GPT_NEOX, rope_parameters
from course_lib.serving import layout, weight_map
from course_lib.serving.ft_settings import FtFolder, opened
from course_lib.serving.layout import BIAS_SUM, SUMMED, FtConfig, TensorSpec


@dataclass(frozen=True)
class Loaded:
    """A model, its prefixes, and its configuration."""

    model: Any  # GPTNeoXForCausalLM or GPT2LMHeadModel, frozen, in eval mode
    prefixes: list[Tensor | None]  # [P, L·2·H] per task, in task order; None for a task without a prefix
    config: FtConfig


def load(folder: Path, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> Loaded:
    """Load the model and prefixes from DIR or DIR/N-gpu; `dtype` is that of the model, by default the stored one."""
    found = opened(folder)
    config, wanted = found.config, dtype or TORCH[found.config.dtype]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(hf_config(found))
    state = {
        name if name.startswith("lm_head") else f"{model.base_model_prefix}.{name}": tensor.to(device, wanted)
        for name, tensor in weights(found)
    }
    model.load_state_dict(state, assign=True, strict=config.head)
    model.tie_weights()
    # The rotary frequencies are not stored as weights, so compute them again, in fp32
    if config.family == "gptneox":
        model.gpt_neox.rotary_emb = type(model.gpt_neox.rotary_emb)(model.config).to(device)
    prefixes = [prefix(found, task).to(device, wanted) if task.length else None for task in config.tasks]
    return Loaded(model.requires_grad_(False).eval(), prefixes, config)


def weights(found: FtFolder) -> Iterator[tuple[str, Tensor]]:
    """Yield each weight under its short name, in the stored dtype, one at a time.

    Both biases of row-parallel products are multiplied by the divisor. With parallel residual, the engine reads only
    their sum: raises CourseError if the stored sum is another, or if a file is missing or has the wrong size.
    """
    folder, config, divisor = found.path, found.config, found.divisor or 1
    for name, spec in layout.weights(config).items():
        tensor = weight_map.from_ft(read(folder, spec, config), spec, config)
        yield name, tensor * divisor if divisor > 1 and name.endswith(SUMMED) else tensor
    for name in wrong_sums(folder, config):
        raise CourseError(f"{folder / name}: is not the sum of {' and '.join(SUMMED)}; the engine reads the sum")


def wrong_sums(folder: Path, config: FtConfig) -> Iterator[str]:
    """Yield the files whose numbers are not the sums of their layers' two biases; only parallel residual has them."""
    for layer in range(config.layers if config.parallel_residual else 0):
        specs = [TensorSpec(f"{layout.LAYERS}{layer}.{name}", (config.hidden,)) for name in (BIAS_SUM, *SUMMED)]
        total, attention, mlp = (read(folder, spec, config) for spec in specs)
        if not torch.equal(total, attention + mlp):
            yield specs[0].files(1)[0]


def prefix(found: FtFolder, task: layout.PrefixTask) -> Tensor:
    """Return a task's prefix [P, L·2·H] in the stored dtype."""
    return weight_map.prefix_values(read(found.path, layout.prefix(found.config, task), found.config))


def numbers(path: Path, dtype: NumberFormat) -> Tensor:
    """Return the numbers in a file as a flat tensor."""
    return torch.from_numpy(np.fromfile(path, np.uint8)).view(TORCH[dtype])


def read(folder: Path, spec: TensorSpec, config: FtConfig) -> Tensor:
    """Return a tensor as stored, its parts joined. Raises CourseError if a file is missing or has the wrong size."""
    shape = spec.part(config.ranks)
    parts = [numbers(path, config.dtype).view(shape) for path in layout.checked_files(folder, spec, config)]
    return torch.cat(parts, spec.axis or 0)


def hf_config(found: FtFolder) -> Any:
    """Return the Hugging Face configuration."""
    config = found.config
    shape: dict[str, Any] = {"vocab_size": config.vocab_size, "hidden_size": config.hidden}
    shape |= {"num_layers": config.layers, "num_attention_heads": config.heads, "ffn_hidden_size": config.inter_size}
    shape |= {"bos_token_id": config.start_id, "eos_token_id": config.end_id}
    lacks = {key: setting.value for key, setting in found.settings.items()}
    if config.family == "gpt":
        shape |= {"max_position_embeddings": config.positions, "tie_word_embeddings": not config.head}
        return GPT2Config(**GPT2.renamed(shape), **lacks, architectures=["GPT2LMHeadModel"])
    share = config.rotary / config.head_size
    if int(config.head_size * share) != config.rotary:
        share = nextafter(share, 1.0)
    shape |= {
        "use_parallel_residual": config.parallel_residual,
        "rope_parameters": rope_parameters(share, lacks.pop("rope_theta")),
        "tie_word_embeddings": False,
    }
    return GPTNeoXConfig(**GPT_NEOX.renamed(shape), **lacks, architectures=["GPTNeoXForCausalLM"])
