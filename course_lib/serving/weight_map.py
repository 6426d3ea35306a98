"""Conversion of a weight between its Hugging Face layout and its FasterTransformer layout for N ranks.

This module handles names, order and shapes, but not files. FasterTransformer computes x·W, so GPT-NeoX weights are
transposed to [in, out]; GPT-2 already stores its weights this way. The fused query/key/value weight is ordered by
query, key and value and then by head in FasterTransformer, but by head first in GPT-NeoX. Each rank receives an equal
part: whole heads, columns or rows.
"""

import re

import torch
from torch import Tensor

from course_lib.checkpoints.weight_files import is_leftover
from course_lib.serving.layout import Family, FtConfig, TensorSpec, tensors

ROWS = 128  # rows of a weight that are copied at a time; they fit in the CPU cache
PREFIXES = re.compile(r"^(module\.)?(gpt_neox\.|transformer\.)?")
BASES: dict[Family, str] = {"gptneox": "gpt_neox.", "gpt": "transformer."}
# GPT-NeoX files call the output layer embed_out; in memory, transformers 5 calls it lm_head
HEADS: dict[Family, str] = {"gptneox": "embed_out.weight", "gpt": "lm_head.weight"}


def short(name: str) -> str | None:
    """Return a weight's name without the model's prefix, or None for a leftover constant.

    Examples: `gpt_neox.layers.0…` → `layers.0…`, `embed_out` → `lm_head`.
    """
    name = PREFIXES.sub("", name)
    return None if is_leftover(name) else name.replace("embed_out.", "lm_head.")


def full(name: str, family: Family) -> str:
    """Return a weight's name in a Hugging Face file, from its short name; the inverse of `short`."""
    return HEADS[family] if name == "lm_head.weight" else BASES[family] + name


def specs_by_weight(config: FtConfig) -> dict[str, TensorSpec]:
    """Return how each weight is stored, by the weights' short names."""
    return {spec.weight: spec for spec in tensors(config) if spec.weight}


def shape(spec: TensorSpec, config: FtConfig) -> tuple[int, ...]:
    """Return the shape of the weight in the Hugging Face model."""
    sizes = spec.shape
    sizes = (*sizes[:-2], sizes[-2] * sizes[-1]) if _is_qkv(spec) else sizes
    return sizes[::-1] if _transposed(spec, config) else sizes


def slots(whole: Tensor, spec: TensorSpec, config: FtConfig) -> list[Tensor]:
    """Return views into a stored tensor, before it is split between ranks, in the order of the Hugging Face rows.

    Copying the Hugging Face model's rows into these views, one view after the other, produces the stored layout.
    """
    sizes = shape(spec, config)
    rows = whole.view(sizes[::-1]).t() if _transposed(spec, config) else whole.view(sizes)
    if config.family == "gptneox" and _is_qkv(spec):
        blocks = rows.split(config.head_size)  # type: ignore[no-untyped-call]
        return [blocks[part * config.heads + head] for head in range(config.heads) for part in range(3)]
    return list(rows.split(ROWS))  # type: ignore[no-untyped-call]


def as_is(spec: TensorSpec, config: FtConfig) -> bool:
    """Return whether a single file holds the weight in the layout of the Hugging Face model."""
    moved = _transposed(spec, config) or (config.family == "gptneox" and _is_qkv(spec))
    return not moved and (spec.axis is None or config.ranks == 1)


def cut(whole: Tensor, spec: TensorSpec, ranks: int) -> tuple[Tensor, ...]:
    """Return the part of a stored tensor for each file; the parts are views and may not be contiguous."""
    return (whole,) if spec.axis is None else whole.chunk(ranks, spec.axis)


def restored(parts: list[Tensor], spec: TensorSpec, config: FtConfig) -> Tensor:
    """Return the Hugging Face weight from the parts in its files."""
    whole = parts[0] if spec.axis is None else torch.cat(parts, spec.axis)
    return torch.cat(slots(whole, spec, config))


def _is_qkv(spec: TensorSpec) -> bool:
    return "query_key_value" in spec.name


def _transposed(spec: TensorSpec, config: FtConfig) -> bool:
    in_layer = spec.name.startswith("model.layers.") and spec.name.endswith(".weight")
    return config.family == "gptneox" and in_layer and len(spec.shape) > 1


def prefix_stored(values: Tensor, config: FtConfig) -> Tensor:
    """Return a prefix [P, L·2·H] in the stored layout [L, 2, n, P, d], before it is split between ranks.

    P is the prefix length, L the number of layers, n the number of heads, d the head size, and H = n·d the hidden size.
    """
    return values.view(len(values), config.layers, 2, config.heads, config.head_size).permute(1, 2, 3, 0, 4)


def prefix_values(parts: list[Tensor]) -> Tensor:
    """Return the prefix [P, L·2·H] from the parts in its files (see `prefix_stored` for the letters)."""
    whole = torch.cat(parts, 2).permute(3, 0, 1, 2, 4)
    return whole.reshape(len(whole), -1)
