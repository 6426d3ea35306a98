"""Conversion of Megatron GPT weights to Hugging Face GPT-2 weights: sizes, names, ranks and row order.

What GPT-2 does not have raises an error that names it, because dropping it would change the model: rotary positions,
RMSNorm, SwiGLU, grouped-query attention, mixture of experts, untied output heads.
"""

import re
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from course_lib.errors import CourseError, UsageError
from course_lib.pretrain.megatron_checkpoint import Checkpoint

# Maximum number of tensor ranks that the vocabulary of a merged checkpoint may have been padded for.
PADDED_FOR = 8
WORDS, POSITIONS = "embedding.word_embeddings.weight", "embedding.position_embeddings.weight"
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
NORM = {f"final_layernorm.{kind}": (f"transformer.ln_f.{kind}", None) for kind in ("weight", "bias")}
# What names that GPT-2 does not have, or lacks, are a sign of.
SIGNS = {
    r"expert|moe": "a mixture of experts",
    r"output_layer": "an untied output head",
    r"decoder\.": "Megatron-Core's names",
    r"position_embeddings": "no learned positions",
    r"^([\w.]*norm\.bias(, |$))+$": "RMSNorm",
}


@dataclass(frozen=True)
class MegatronSizes:
    """Model sizes."""

    hidden: int
    heads: int
    inner: int  # width of the feed-forward layer
    positions: int
    layers: int
    padded: int  # number of rows in the checkpoint's embedding
    vocabulary: int  # number of embedding rows to keep


def model_sizes(source: Checkpoint, heads: int | None, entries: int | None, vocab_size: int | None) -> MegatronSizes:
    """Return the model sizes, based on the tensor shapes.

    Args:
        source: the checkpoint.
        heads: number of attention heads, if the training arguments do not record it; the shapes do not reveal it.
        entries: number of entries in the tokenizer, or None if there is no tokenizer.
        vocab_size: vocabulary size to keep; None selects that of the tokenizer or, without a tokenizer, keeps all rows.
    """
    args, ranks, first = source.args, len(source.ranks), source.ranks[0]
    _refuse_unsupported(source.folder, args)
    numbers = [int(match[1]) for name in first if (match := re.match(r"layers\.(\d+)\.", name))]
    layers = getattr(args, "num_layers", max(numbers, default=0) + 1)
    _require_names(source, layers)
    positions, hidden = first[POSITIONS].shape[0], first[POSITIONS].shape[-1]
    recorded = getattr(args, "num_attention_heads", None)
    if not (heads or recorded) or (heads or recorded) != (recorded or heads):
        raise UsageError(f"--heads: {heads} is not allowed: the checkpoint records {recorded}; one of them must be set")
    heads = heads or recorded
    assert heads
    if hidden % heads or heads % ranks:
        raise UsageError(
            f"--heads: {heads} must divide the width {hidden} and be a multiple of the tensor ranks, {ranks}"
        )
    padded = first[WORDS].shape[0] * ranks
    spare = getattr(args, "make_vocab_size_divisible_by", 128) * max(ranks, PADDED_FOR)
    vocabulary = _vocabulary(padded, spare, entries, vocab_size)
    inner = first["layers.0.mlp.dense_h_to_4h.weight"].shape[0] * ranks
    return MegatronSizes(hidden, heads, inner, positions, layers, padded, vocabulary)


def gpt2_weights(source: Checkpoint, sizes: MegatronSizes, version: float) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each weight as (GPT-2 name, tensor), merged across ranks and in GPT-2's row and dimension order.

    `version` is the checkpoint format version, which determines the row order in query_key_value.
    """
    hidden, inner = sizes.hidden, sizes.inner
    full = {
        "attn.c_attn": (3 * hidden, hidden),
        "attn.c_proj": (hidden, hidden),
        "mlp.c_fc": (inner, hidden),
        "mlp.c_proj": (hidden, inner),
    }
    yield "transformer.wte.weight", _merge(source, WORDS, ROWS, (sizes.padded, hidden))[: sizes.vocabulary].clone()
    yield "transformer.wpe.weight", _merge(source, POSITIONS, None, (sizes.positions, hidden))
    for index in range(sizes.layers):
        for theirs, (ours, shared) in LAYER.items():
            module, kind = ours.rsplit(".", 1)
            size = full.get(module, (hidden,))[: 1 if kind == "bias" else 2]
            heads = sizes.heads if module == "attn.c_attn" else None
            value = _merge(source, f"layers.{index}.{theirs}", shared, size, heads, version)
            yield f"transformer.h.{index}.{ours}", value.t().contiguous() if len(size) == 2 else value
    for theirs, (ours, shared) in NORM.items():
        yield ours, _merge(source, theirs, shared, (hidden,))


def _merge(
    source: Checkpoint,
    name: str,
    shared: int | None,
    size: tuple[int, ...],
    heads: int | None = None,
    version: float = 0,
) -> torch.Tensor:
    """Return one weight of shape `size`, merged from its ranks, which split it along the dimension `shared`, or not.

    `heads` and the format version are for query_key_value only.
    """
    values = [state[name] for state in source.ranks]
    ranks = len(values)
    expected = tuple(n // ranks if dim == shared else n for dim, n in enumerate(size))
    for rank, value in enumerate(values):
        if tuple(value.shape) != expected:
            raise CourseError(
                f"{source.folder}: {name} of rank {rank} has shape {tuple(value.shape)}, expected {expected}"
            )
    if shared is None:
        # Copy the tensor, because DeepSpeed tensors can be views of a shared buffer.
        return values[0].clone(memory_format=torch.contiguous_format)
    if heads is not None:
        return torch.cat([_split_qkv(value, heads // ranks, version) for value in values], dim=1).reshape(size)
    return torch.cat(values, dim=shared)


def _split_qkv(value: torch.Tensor, heads: int, version: float) -> torch.Tensor:
    """Reorder one rank's query, key and value rows to [3, heads, rows per head, …]."""
    rows, rest = value.shape[0] // (3 * heads), value.shape[1:]
    if version == 0:
        return value.reshape(3, heads, rows, *rest)
    if version == 1:
        return value.reshape(heads, rows, 3, *rest).movedim(2, 0)
    return value.reshape(heads, 3, rows, *rest).movedim(1, 0)


def _require_names(source: Checkpoint, layers: int) -> None:
    """Raise CourseError unless every rank has exactly the tensors of a GPT-2 with so many layers."""
    wanted = {WORDS, POSITIONS, *NORM, *(f"layers.{index}.{name}" for index in range(layers) for name in LAYER)}
    for rank, state in enumerate(source.ranks):
        extra, missing = sorted(state.keys() - wanted), sorted(wanted - state.keys())
        if names := ", ".join((extra or missing)[:3]):
            problem = f"GPT-2 has no place for {names}" if extra else f"{names} missing"
            sign = "".join(f" ({meaning})" for pattern, meaning in SIGNS.items() if re.search(pattern, names))
            raise CourseError(f"{source.folder}: tensor rank {rank}: {problem}{sign}")


def _vocabulary(padded: int, spare: int, entries: int | None, vocab_size: int | None) -> int:
    """Return the number of vocabulary rows to keep: `vocab_size` if set, else the tokenizer's `entries`, else all.

    `padded` is the number of rows in the checkpoint. `spare` is the maximum number of rows that Megatron could have
    added as padding.
    """
    kept = vocab_size or entries or padded
    if not (entries or 1) <= kept <= padded:
        raise UsageError(
            f"--vocab-size: {kept} is not allowed: the tokenizer has {entries or 1} entries, the checkpoint {padded}"
        )
    if not vocab_size and padded - kept > spare:
        raise UsageError(
            f"--tokenizer: has {kept} entries, the checkpoint {padded}, more than padding explains; "
            f"if it is the right one, give --vocab-size {kept}"
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
    if names := [name for name, present in features.items() if present]:
        raise CourseError(f"{folder}: trained with {', '.join(names)}, which GPT-2 has no place for")
