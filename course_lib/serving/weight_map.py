"""Conversion of a weight between its Hugging Face layout and its FasterTransformer layout for N ranks.

This module handles names, order and shapes, but not files. FasterTransformer computes x·W, so GPT-NeoX weights are
transposed to [in, out]; GPT-2 already stores its weights this way. The fused query/key/value weight is ordered by
query, key and value and then by head in FasterTransformer, but by head first in GPT-NeoX. Each rank receives an equal
part: whole heads, columns or rows.
"""

import re
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from course_lib.checkpoints.weight_files import is_leftover
from course_lib.serving.layout import Family, FtConfig, TensorSpec, tensors

Kind = Literal["plain", "linear", "qkv"]
ROWS = 128  # rows of a weight that are copied at a time; they fit in the CPU cache

GLOBAL: dict[Family, dict[str, str]] = {
    "gptneox": {"embed_in": "wte", "final_layer_norm": "final_layernorm", "lm_head": "lm_head"},
    "gpt": {"wte": "wte", "wpe": "wpe", "ln_f": "final_layernorm", "lm_head": "lm_head"},
}
BLOCKS: dict[Family, str] = {"gptneox": "layers", "gpt": "h"}
LAYER: dict[Family, dict[str, str]] = {
    "gptneox": {name: name for name in (
        "input_layernorm", "post_attention_layernorm", "attention.query_key_value", "attention.dense",
        "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
    )},
    "gpt": {
        "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm", "attn.c_attn": "attention.query_key_value",
        "attn.c_proj": "attention.dense", "mlp.c_fc": "mlp.dense_h_to_4h", "mlp.c_proj": "mlp.dense_4h_to_h",
    },
}  # fmt: skip
PREFIXES = re.compile(r"^(module\.)?(gpt_neox\.|transformer\.)?")
BASES: dict[Family, str] = {"gptneox": "gpt_neox.", "gpt": "transformer."}
# GPT-NeoX files call the output layer embed_out; in memory, transformers 5 calls it lm_head
HEADS: dict[Family, str] = {"gptneox": "embed_out.weight", "gpt": "lm_head.weight"}


class Piece(NamedTuple):
    """The stored tensor for a weight, and how its layout differs from the Hugging Face layout."""

    spec: TensorSpec
    kind: Kind


def short(name: str) -> str | None:
    """Return a weight's name without the model's prefix, or None for a leftover constant.

    Examples: `gpt_neox.layers.0…` → `layers.0…`, `embed_out` → `lm_head`.
    """
    name = PREFIXES.sub("", name)
    return None if is_leftover(name) else name.replace("embed_out.", "lm_head.")


def full(name: str, family: Family) -> str:
    """Return a weight's name in a Hugging Face file, from its short name; the inverse of `short`."""
    return HEADS[family] if name == "lm_head.weight" else BASES[family] + name


def pieces(config: FtConfig) -> dict[str, Piece]:
    """Return how each weight is stored (name, shape, split axis); weights are identified by their short names."""
    specs = {spec.name: spec for spec in tensors(config)}
    pieces_by_name = {}
    for theirs, ours in GLOBAL[config.family].items():
        # FasterTransformer's names for the embedding tables do not end with `.weight`
        for part, name in ((".weight", ours), (".weight", f"{ours}.weight"), (".bias", f"{ours}.bias")):
            if f"model.{name}" in specs:
                pieces_by_name[theirs + part] = Piece(specs[f"model.{name}"], "plain")
    for layer in range(config.layers):
        for theirs, ours in LAYER[config.family].items():
            kind: Kind = "plain" if "layernorm" in ours else "qkv" if "query" in ours else "linear"
            for part in ("weight", "bias"):
                name = f"{BLOCKS[config.family]}.{layer}.{theirs}.{part}"
                pieces_by_name[name] = Piece(specs[f"model.layers.{layer}.{ours}.{part}"], kind)
    return pieces_by_name


def shape(piece: Piece, config: FtConfig) -> tuple[int, ...]:
    """Return the shape of the weight in the Hugging Face model."""
    sizes = piece.spec.shape
    sizes = (*sizes[:-2], sizes[-2] * sizes[-1]) if piece.kind == "qkv" else sizes
    return sizes[::-1] if _transposed(piece, config) else sizes


def slots(whole: Tensor, piece: Piece, config: FtConfig) -> list[Tensor]:
    """Return views into a stored tensor, before it is split between ranks, in the order of the Hugging Face rows.

    Copying the Hugging Face model's rows into these views, one view after the other, produces the stored layout.
    """
    sizes = shape(piece, config)
    rows = whole.view(sizes[::-1]).t() if _transposed(piece, config) else whole.view(sizes)
    if config.family == "gptneox" and piece.kind == "qkv":
        blocks = rows.split(config.head_size)  # type: ignore[no-untyped-call]
        return [blocks[part * config.heads + head] for head in range(config.heads) for part in range(3)]
    return list(rows.split(ROWS))  # type: ignore[no-untyped-call]


def as_is(piece: Piece, config: FtConfig) -> bool:
    """Return whether a single file holds the weight in the layout of the Hugging Face model."""
    moved = _transposed(piece, config) or (config.family == "gptneox" and piece.kind == "qkv")
    return not moved and (piece.spec.axis is None or config.ranks == 1)


def cut(whole: Tensor, spec: TensorSpec, ranks: int) -> tuple[Tensor, ...]:
    """Return the part of a stored tensor for each file; the parts are views and may not be contiguous."""
    return (whole,) if spec.axis is None else whole.chunk(ranks, spec.axis)


def restored(parts: list[Tensor], piece: Piece, config: FtConfig) -> Tensor:
    """Return the Hugging Face weight from the parts in its files."""
    whole = parts[0] if piece.spec.axis is None else torch.cat(parts, piece.spec.axis)
    return torch.cat(slots(whole, piece, config))


def _transposed(piece: Piece, config: FtConfig) -> bool:
    return config.family == "gptneox" and piece.kind != "plain" and piece.spec.name.endswith(".weight")


def prefix_stored(values: Tensor, config: FtConfig) -> Tensor:
    """Return a prefix [P, L·2·H] in the stored layout [L, 2, n, P, d], before it is split between ranks.

    P is the prefix length, L the number of layers, n the number of heads, d the head size, and H = n·d the hidden size.
    """
    return values.view(len(values), config.layers, 2, config.heads, config.head_size).permute(1, 2, 3, 0, 4)


def prefix_values(parts: list[Tensor]) -> Tensor:
    """Return the prefix [P, L·2·H] from the parts in its files (see `prefix_stored` for the letters)."""
    whole = torch.cat(parts, 2).permute(3, 0, 1, 2, 4)
    return whole.reshape(len(whole), -1)
