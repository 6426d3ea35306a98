"""Megatron's GPT weights as GPT-2's: sizes, names, merged tensor ranks, order of rows.

What GPT-2 has no place for (rotary positions, RMSNorm, SwiGLU, grouped queries, experts, an untied head) is refused by name: leaving
it out would give another model. Finding and reading the files is megatron_checkpoint.py, writing the folder megatron.py.
"""

from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from course_lib.errors import CourseError, UsageError
from course_lib.pretrain.megatron_checkpoint import Checkpoint, Part

PADDED_FOR = 8  # tensor ranks a vocabulary may have been padded for before the checkpoint was merged
WORDS, POSITIONS = "word_embeddings.weight", "position_embeddings.weight"
QKV, UP, DOWN = "self_attention.query_key_value.weight", "mlp.dense_h_to_4h.weight", "mlp.dense_4h_to_h.weight"
ROWS, COLUMNS = 0, 1  # the dimension that tensor ranks share; None: every rank has the whole
LAYER: dict[str, tuple[str, int | None]] = {  # Megatron's name → GPT-2's, and the shared dimension
    "input_layernorm.weight": ("ln_1.weight", None),
    "input_layernorm.bias": ("ln_1.bias", None),
    "self_attention.query_key_value.weight": ("attn.c_attn.weight", ROWS),
    "self_attention.query_key_value.bias": ("attn.c_attn.bias", ROWS),
    "self_attention.dense.weight": ("attn.c_proj.weight", COLUMNS),
    "self_attention.dense.bias": ("attn.c_proj.bias", None),
    "post_attention_layernorm.weight": ("ln_2.weight", None),
    "post_attention_layernorm.bias": ("ln_2.bias", None),
    "mlp.dense_h_to_4h.weight": ("mlp.c_fc.weight", ROWS),
    "mlp.dense_h_to_4h.bias": ("mlp.c_fc.bias", ROWS),
    "mlp.dense_4h_to_h.weight": ("mlp.c_proj.weight", COLUMNS),
    "mlp.dense_4h_to_h.bias": ("mlp.c_proj.bias", None),
}


@dataclass(frozen=True)
class Shape:
    """Sizes of the model. `padded` counts the rows of the embedding, `vocabulary` those that are kept."""

    hidden: int
    heads: int
    inner: int
    positions: int
    layers: int
    padded: int
    vocabulary: int


def model_shape(source: Checkpoint, heads: int | None, entries: int | None, vocab_size: int | None) -> Shape:
    """Sizes from the tensors; the number of heads is the only one they do not show."""
    args, ranks, embedding, first = source.args, source.tensor_parallel, source.embedding, source.layers[0]
    _refuse_unsupported(source.folder, args)
    if POSITIONS not in embedding.states[0]:
        raise CourseError(f"{embedding.files[0]}: no learned positions (rotary, ALiBi or none), which GPT-2 needs")
    _require_exactly(embedding, (WORDS, POSITIONS))
    _require_exactly(first, LAYER)
    for part, names in ((embedding, (WORDS, POSITIONS)), (first, (QKV, UP, DOWN))):
        for name in names:
            if part.states[0][name].dim() != 2:
                raise CourseError(f"{part.files[0]}: {name} is no matrix")
    (positions, hidden), words = embedding.states[0][POSITIONS].shape, embedding.states[0][WORDS].shape[0]
    said = getattr(args, "num_attention_heads", None)
    if heads and said and heads != said:
        raise UsageError(f"heads {heads}: the checkpoint's arguments say {said}")
    heads = heads or said
    if not heads:
        raise UsageError("heads: this checkpoint does not say how many attention heads it has; give --heads")
    if hidden % heads or heads % ranks:
        raise UsageError(
            f"heads {heads}: must divide the width {hidden} and be a multiple of the tensor ranks, {ranks}"
        )
    up, down, qkv = (first.states[0][name].shape for name in (UP, DOWN, QKV))
    if up[0] == 2 * down[1]:
        raise CourseError(
            f"{first.files[0]}: {UP} is twice as wide as {DOWN}: a gated MLP (SwiGLU), which GPT-2 has no place for"
        )
    if qkv[0] * ranks < 3 * hidden:
        raise CourseError(
            f"{first.files[0]}: {QKV} has {qkv[0]} rows: grouped-query attention, which GPT-2 has no place for"
        )
    padded = words * ranks
    spare = getattr(args, "make_vocab_size_divisible_by", 128) * max(ranks, PADDED_FOR)
    vocabulary = _vocabulary(padded, spare, entries, vocab_size)
    return Shape(hidden, heads, up[0] * ranks, positions, len(source.layers), padded, vocabulary)


def gpt2_weights(source: Checkpoint, shape: Shape, version: float) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights under GPT-2's names, merged and in GPT-2's order of rows and dimensions, one at a time."""
    hidden, inner = shape.hidden, shape.inner
    full = {
        "attn.c_attn": (3 * hidden, hidden),
        "attn.c_proj": (hidden, hidden),
        "mlp.c_fc": (inner, hidden),
        "mlp.c_proj": (hidden, inner),
    }
    words = _merge(source.embedding, WORDS, ROWS, (shape.padded, hidden))
    yield "transformer.wte.weight", words[: shape.vocabulary].clone()
    yield "transformer.wpe.weight", _merge(source.embedding, POSITIONS, None, (shape.positions, hidden))
    for index, layer in enumerate(source.layers):
        _require_exactly(layer, LAYER)
        for theirs, (ours, shared) in LAYER.items():
            module, kind = ours.rsplit(".", 1)
            size = full.get(module, (hidden,))[: 1 if kind == "bias" else 2]
            heads = shape.heads if module == "attn.c_attn" else None
            value = _merge(layer, theirs, shared, size, heads, version)
            yield f"transformer.h.{index}.{ours}", value.t().contiguous() if len(size) == 2 else value
    _require_exactly(source.final_norm, ("weight", "bias"))
    for kind in ("weight", "bias"):
        yield f"transformer.ln_f.{kind}", _merge(source.final_norm, kind, None, (hidden,))


def _merge(
    part: Part, name: str, shared: int | None, size: tuple[int, ...], heads: int | None = None, version: float = 0
) -> torch.Tensor:
    """One weight from its tensor ranks, each of which is held against the shape it must have."""
    ranks = len(part.states)
    expected = tuple(n // ranks if dim == shared else n for dim, n in enumerate(size))
    for file, state in zip(part.files, part.states, strict=True):
        if name not in state:
            raise CourseError(f"{file}: {name} is missing")
        if tuple(state[name].shape) != expected:
            raise CourseError(f"{file}: {name} has shape {tuple(state[name].shape)}, expected {expected}")
    values = [state[name] for state in part.states]
    if shared is None:
        return values[0].clone(memory_format=torch.contiguous_format)  # DeepSpeed's may be views of one buffer
    if heads is not None:
        return torch.cat([_split_qkv(value, heads // ranks, version) for value in values], dim=1).reshape(size)
    return torch.cat(values, dim=shared)


def _split_qkv(value: torch.Tensor, heads: int, version: float) -> torch.Tensor:
    """The rows of one rank as [3, heads, rows of a head, …], whatever their order in the file."""
    rows, rest = value.shape[0] // (3 * heads), value.shape[1:]
    if version == 0:
        return value.reshape(3, heads, rows, *rest)
    if version == 1:
        return value.reshape(heads, rows, 3, *rest).movedim(2, 0)
    return value.reshape(heads, 3, rows, *rest).movedim(1, 0)


def _require_exactly(part: Part, names: Iterable[str]) -> None:
    """Refuses a part that holds less or more than GPT-2 has: leaving something out would give another model."""
    for file, state in zip(part.files, part.states, strict=True):
        if extra := sorted(state.keys() - set(names)):
            experts = "a mixture of experts: " if any("moe" in name or "expert" in name for name in extra) else ""
            raise CourseError(f"{file}: {experts}GPT-2 has no place for {', '.join(extra)}")
        if missing := sorted(set(names) - state.keys()):
            norm = " (RMSNorm)" if missing[0].endswith("norm.bias") or missing == ["bias"] else ""
            raise CourseError(f"{file}: {', '.join(missing)} missing{norm}")


def _vocabulary(padded: int, spare: int, entries: int | None, vocab_size: int | None) -> int:
    """Rows to keep: as told, else the tokenizer's entries, else all. `spare` is how many rows Megatron may have padded."""
    if entries and entries > padded:
        raise UsageError(f"tokenizer: has {entries} entries, the checkpoint {padded}: it was trained with another")
    if vocab_size and not (entries or 1) <= vocab_size <= padded:
        raise UsageError(f"vocab_size {vocab_size}; allowed: {entries or 1} to {padded}, the checkpoint's")
    kept = vocab_size or entries or padded
    if not vocab_size and padded - kept > spare:
        raise UsageError(
            f"tokenizer: has {kept} entries, the checkpoint {padded}, more than padding explains: was it trained with "
            f"another? If it is the right one, give --vocab-size {kept}"
        )
    return kept


def _refuse_unsupported(folder: Path, args: Namespace) -> None:
    experts = getattr(args, "num_experts", None) or 1
    heads = getattr(args, "num_attention_heads", None)
    found = {
        "an untied output head": getattr(args, "untie_embeddings_and_output_weights", False),
        "rotary positions": getattr(args, "use_rotary_position_embeddings", False),
        "RMSNorm": str(getattr(args, "normalization", "layernorm")).lower() != "layernorm",
        "SwiGLU": getattr(args, "swiglu", False),
        "squared ReLU": getattr(args, "squared_relu", False),
        "grouped-query attention": (getattr(args, "num_key_value_heads", None) or heads) != heads
        or getattr(args, "group_query_attention", False),
        "a mixture of experts": max(experts if isinstance(experts, list) else [experts]) > 1,
        "layernorm-1p": getattr(args, "apply_layernorm_1p", False),
        "residuals after the norm": getattr(args, "apply_residual_connection_post_layernorm", False),
        "linear layers without bias": not getattr(args, "add_bias_linear", True),
    }
    names = [name for name, present in found.items() if present]
    if names:
        raise CourseError(f"{folder}: trained with {', '.join(names)}, which GPT-2 has no place for")
