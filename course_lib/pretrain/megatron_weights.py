"""Conversion of Megatron GPT weights to Hugging Face GPT-2 weights: sizes, names, ranks and row order.

Features that GPT-2 does not support raise an error that names them, because dropping them would change the model:
rotary positions, RMSNorm, SwiGLU, grouped-query attention, mixture of experts and untied output heads.
megatron_checkpoint.py reads the files; megatron.py writes the folder.
"""

from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from course_lib.errors import CourseError, UsageError
from course_lib.pretrain.megatron_checkpoint import Checkpoint, Part

# Maximum number of tensor ranks that the vocabulary of a merged checkpoint may have been padded for.
PADDED_FOR = 8
WORDS, POSITIONS = "word_embeddings.weight", "position_embeddings.weight"
QKV, UP, DOWN = "self_attention.query_key_value.weight", "mlp.dense_h_to_4h.weight", "mlp.dense_4h_to_h.weight"
# The dimension along which tensor-parallel ranks split a weight. None means that every rank has the whole weight.
ROWS, COLUMNS = 0, 1
# Megatron name → GPT-2 name and split dimension.
LAYER: dict[str, tuple[str, int | None]] = {
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
    """Model sizes."""

    hidden: int
    heads: int
    inner: int  # width of the feed-forward layer
    positions: int
    layers: int
    padded: int  # number of rows in the checkpoint's embedding
    vocabulary: int  # number of embedding rows to keep


def model_shape(source: Checkpoint, heads: int | None, entries: int | None, vocab_size: int | None) -> Shape:
    """Return the model sizes, based on the tensor shapes.

    Args:
        source: the checkpoint.
        heads: number of attention heads, if the training arguments do not record it; the shapes do not reveal it.
        entries: number of entries in the tokenizer, or None if there is no tokenizer.
        vocab_size: vocabulary size to keep; None selects that of the tokenizer or, without a tokenizer, keeps all rows.

    Raises:
        CourseError: if the model is not a GPT-2 model.
        UsageError: if an argument contradicts the checkpoint.
    """
    args, ranks, embedding, first = source.args, source.tensor_parallel, source.embedding, source.layers[0]
    _refuse_unsupported(source.folder, args)
    if POSITIONS not in embedding.states[0]:
        raise CourseError(f"{embedding.files[0]}: no learned positions (rotary, ALiBi or none), which GPT-2 needs")
    _require_exactly(embedding, (WORDS, POSITIONS))
    _require_exactly(first, LAYER)
    for part, names in ((embedding, (WORDS, POSITIONS)), (first, (QKV, UP, DOWN))):
        for name in names:
            if part.states[0][name].dim() != 2:
                raise CourseError(f"{part.files[0]}: {name} is not a matrix")
    (positions, hidden), words = embedding.states[0][POSITIONS].shape, embedding.states[0][WORDS].shape[0]
    trained_heads = getattr(args, "num_attention_heads", None)
    if heads and trained_heads and heads != trained_heads:
        raise UsageError(f"heads {heads}: the checkpoint's arguments say {trained_heads}")
    heads = heads or trained_heads
    if not heads:
        raise UsageError("heads: this checkpoint does not record its number of attention heads; give --heads")
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
    """Yield each weight as (GPT-2 name, tensor), merged across ranks and in GPT-2's row and dimension order.

    `version` is the checkpoint format version, which determines the row order in query_key_value.
    """
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
    """Merge one weight from its tensor-parallel ranks.

    Args:
        part: the part that contains the weight.
        name: Megatron name of the weight.
        shared: the dimension along which ranks split the weight, or None.
        size: shape of the merged weight.
        heads: number of attention heads, only for query_key_value.
        version: checkpoint format version.

    Raises:
        CourseError: if the weight is missing on a rank or has the wrong shape.
    """
    ranks = len(part.states)
    expected = tuple(n // ranks if dim == shared else n for dim, n in enumerate(size))
    for file, state in zip(part.files, part.states, strict=True):
        if name not in state:
            raise CourseError(f"{file}: {name} is missing")
        if tuple(state[name].shape) != expected:
            raise CourseError(f"{file}: {name} has shape {tuple(state[name].shape)}, expected {expected}")
    values = [state[name] for state in part.states]
    if shared is None:
        # Copy the tensor, because DeepSpeed tensors can be views of a shared buffer.
        return values[0].clone(memory_format=torch.contiguous_format)
    if heads is not None:
        return torch.cat([_split_qkv(value, heads // ranks, version) for value in values], dim=1).reshape(size)
    return torch.cat(values, dim=shared)


def _split_qkv(value: torch.Tensor, heads: int, version: float) -> torch.Tensor:
    """Reorder one rank's query, key and value rows to [3, heads, rows per head, …].

    The stored order depends on `version`, the checkpoint format version.
    """
    rows, rest = value.shape[0] // (3 * heads), value.shape[1:]
    if version == 0:
        return value.reshape(3, heads, rows, *rest)
    if version == 1:
        return value.reshape(heads, rows, 3, *rest).movedim(2, 0)
    return value.reshape(heads, 3, rows, *rest).movedim(1, 0)


def _require_exactly(part: Part, names: Iterable[str]) -> None:
    """Raise CourseError unless a part contains exactly the tensors listed in `names`.

    Ignoring a tensor would change the model.
    """
    for file, state in zip(part.files, part.states, strict=True):
        if extra := sorted(state.keys() - set(names)):
            experts = any("moe" in name or "expert" in name for name in extra)
            raise CourseError(
                f"{file}: a mixture of experts: GPT-2 has no place for {', '.join(extra)}"
                if experts
                else f"{file}: GPT-2 has no place for {', '.join(extra)}"
            )
        if missing := sorted(set(names) - state.keys()):
            rms = missing[0].endswith("norm.bias") or missing == ["bias"]
            absent = ", ".join(missing)
            raise CourseError(f"{file}: {absent} missing (RMSNorm)" if rms else f"{file}: {absent} missing")


def _vocabulary(padded: int, spare: int, entries: int | None, vocab_size: int | None) -> int:
    """Return the number of vocabulary rows to keep: `vocab_size` if set, else the tokenizer's `entries`, else all.

    `padded` is the number of rows in the checkpoint. `spare` is the maximum number of rows that Megatron could have
    added as padding. Raises UsageError if the tokenizer or `vocab_size` does not match the checkpoint.
    """
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
    """Raise CourseError if the training arguments enable features that GPT-2 does not support."""
    experts = getattr(args, "num_experts", None) or 1
    heads = getattr(args, "num_attention_heads", None)
    features = {
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
    names = [name for name, present in features.items() if present]
    if names:
        raise CourseError(f"{folder}: trained with {', '.join(names)}, which GPT-2 has no place for")
