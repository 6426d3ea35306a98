"""Conversion of a weight between its Hugging Face layout and its FasterTransformer layout.

This module handles names, order and shapes, but not files. FasterTransformer computes x·W, so GPT-NeoX weights are
transposed to [in, out]; GPT-2 already stores its weights this way. The fused query/key/value weight is ordered by
query, key and value and then by head in FasterTransformer, but by head first in GPT-NeoX.
"""

import re

import torch
from torch import Tensor

from course_lib.checkpoints.weight_files import is_leftover
from course_lib.serving.layout import Family, FtConfig, TensorSpec

PREFIXES = re.compile(r"^(module\.)?(gpt_neox\.|transformer\.)?")
BASES: dict[Family, str] = {"gptneox": "gpt_neox.", "gpt": "transformer."}
# GPT-NeoX files call the output layer embed_out; in memory, transformers 5 calls it lm_head
HEADS: dict[Family, str] = {"gptneox": "embed_out.weight", "gpt": "lm_head.weight"}


def short(name: str) -> str | None:
    """Return a weight's name without the model's prefix, such as `layers.0…`, or None for a leftover constant."""
    name = PREFIXES.sub("", name)
    return None if is_leftover(name) else name.replace("embed_out.", "lm_head.")


def full(name: str, family: Family) -> str:
    """Return a weight's name in a Hugging Face file, from its short name; the inverse of `short`."""
    return HEADS[family] if name == "lm_head.weight" else BASES[family] + name


def to_ft(weight: Tensor, spec: TensorSpec, config: FtConfig) -> Tensor:
    """Return a Hugging Face weight in the layout of FasterTransformer, before it is split between ranks."""
    if config.family == "gptneox" and spec.in_layer:
        weight = (_swapped(weight, config.heads, 3) if spec.qkv else weight).t()
    return weight.reshape(spec.shape)


def from_ft(whole: Tensor, spec: TensorSpec, config: FtConfig) -> Tensor:
    """Return the Hugging Face weight from its stored form; the inverse of `to_ft`."""
    weight = whole.flatten(-2) if spec.qkv else whole
    if config.family == "gptneox" and spec.in_layer:
        weight = _swapped(weight.t(), 3, config.heads) if spec.qkv else weight.t()
    return weight.contiguous()


def shape(spec: TensorSpec, config: FtConfig) -> tuple[int, ...]:
    """Return the shape of the weight in the Hugging Face model."""
    return tuple(from_ft(torch.empty(spec.shape, device="meta"), spec, config).shape)


def _swapped(rows: Tensor, first: int, second: int) -> Tensor:
    """Return rows that are ordered [first, second, size] in the order [second, first, size]."""
    return rows.reshape(first, second, -1, *rows.shape[1:]).transpose(0, 1).flatten(0, 2)


def prefix_stored(values: Tensor, config: FtConfig) -> Tensor:
    """Return a prefix [P, L·2·H] in the stored layout [L, 2, heads, P, head size], before it is split between ranks."""
    return values.view(len(values), config.layers, 2, config.heads, config.head_size).permute(1, 2, 3, 0, 4)


def prefix_values(whole: Tensor) -> Tensor:
    """Return the prefix [P, L·2·H] from its stored form; the inverse of `prefix_stored`."""
    return whole.permute(3, 0, 1, 2, 4).flatten(1)
