"""Conversion of Megatron-DeepSpeed GPT checkpoints to Hugging Face GPT-2 folders, including the tokenizer.

The weights are bit-for-bit identical unless another dtype is requested; padding rows of the vocabulary are removed.
Sizes come from the tensor shapes, the activation function and dropout rates from the training arguments, and the
special ids from the tokenizer. Weights are merged and written one at a time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.model_folder import load_tokenizer
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.tokenizer_files import copy_tokenizer
from course_lib.checkpoints.torch_dtypes import TORCH, torch_name
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, require_other, write_json
from course_lib.pretrain.megatron_checkpoint import Checkpoint, State, open_checkpoint, require_copy

SHARD = 5_000_000_000  # maximum bytes of weights in one safetensors file
# Maximum number of tensor ranks that the vocabulary of a merged checkpoint may have been padded for.
PADDED_FOR = 8
WORDS, POSITIONS = "embedding.word_embeddings.weight", "embedding.position_embeddings.weight"
QKV = "self_attention.query_key_value"
# Megatron's module → GPT-2's module, and the dimensions along which tensor-parallel ranks split weight and bias. With
# None, every rank has the whole tensor.
LAYER: dict[str, tuple[str, int | None, int | None]] = {
    "input_layernorm": ("ln_1", None, None),
    QKV: ("attn.c_attn", 0, 0),
    "self_attention.dense": ("attn.c_proj", 1, None),
    "post_attention_layernorm": ("ln_2", None, None),
    "mlp.dense_h_to_4h": ("mlp.c_fc", 0, 0),
    "mlp.dense_4h_to_h": ("mlp.c_proj", 1, None),
}
# Training arguments that change the model without changing the names of its weights. GPT-2 cannot express them.
UNKNOWN = (
    "untie_embeddings_and_output_weights", "swiglu", "squared_relu", "apply_layernorm_1p",
    "apply_residual_connection_post_layernorm",
)  # fmt: skip


def convert(
    checkpoint: Path, target: Path, tokenizer: Path | None = None, dtype: NumberFormat | None = None
) -> dict[str, Any]:
    """Convert a checkpoint to a GPT-2 folder, whose ids and vocabulary the tokenizer sets; return the sizes."""
    for read_only in filter(None, (checkpoint, tokenizer)):
        require_other(read_only, target)
    with atomic_folder(target) as folder:
        source = open_checkpoint(checkpoint)
        config = _config(source)
        padded = config.vocab_size
        if tokenizer:
            _use_tokenizer(source, config, tokenizer)
        # With Megatron's --embedding-weights-in-fp32, the layers have a narrower dtype than the embedding.
        config.dtype = TORCH[dtype] if dtype else source.ranks[0][WORDS].dtype
        weights = (
            (name, weight_files.converted(source.folder, name, value, config.dtype))
            for name, value in gpt2_weights(source, config, padded)
        )
        parameters = weight_files.write(weights, folder, SHARD)
        config.save_pretrained(folder)
        GenerationConfig.from_model_config(config).save_pretrained(folder)
        if tokenizer:
            copy_tokenizer(tokenizer, folder, config.n_positions)
        counts = {
            "parameters": parameters,
            "dtype": torch_name(config.dtype),
            "rows": padded,
            "vocabulary": config.vocab_size,
            "tensor_ranks": len(source.ranks),
            "iteration": source.iteration,
        }
        write_json(folder / "conversion.json", {"checkpoint": str(source.folder)} | counts)
    return counts


def _config(source: Checkpoint) -> GPT2Config:
    """Return the configuration of a checkpoint that GPT-2 can express, with all rows and without special ids."""
    args, ranks, first = source.args, len(source.ranks), source.ranks[0]
    for name in UNKNOWN:
        if getattr(args, name, False):
            raise CourseError(f"{source.folder}: trained with {name}=True, which GPT-2 has no place for")
    wanted = {WORDS, *(theirs for theirs, _, _ in _names(args.num_layers))}
    for rank, state in enumerate(source.ranks):
        extra, missing = sorted(state.keys() - wanted), sorted(wanted - state.keys())
        if extra or missing:
            problem = f"GPT-2 has no place for {', '.join(extra[:3])}" if extra else f"{', '.join(missing[:3])} missing"
            raise CourseError(f"{source.folder}: tensor rank {rank}: {problem}")
    (rows, hidden), (positions, _) = (_matrix(source, first, name) for name in (WORDS, POSITIONS))
    inner, _ = _matrix(source, first, "layers.0.mlp.dense_h_to_4h.weight")
    heads = args.num_attention_heads
    if heads < 1 or hidden % heads:
        raise CourseError(f"{source.folder}: num_attention_heads is {heads}, the hidden size {hidden}")
    dropout = getattr(args, "hidden_dropout", 0.1)
    # Megatron uses the tanh approximation for its fused bias+GELU and for `openai_gelu`, and the exact GELU otherwise.
    fused = getattr(args, "bias_gelu_fusion", True) and not getattr(args, "onnx_safe", False)
    return GPT2Config(
        vocab_size=rows * ranks,
        n_positions=positions,
        n_embd=hidden,
        n_layer=args.num_layers,
        n_head=args.num_attention_heads,
        n_inner=inner * ranks,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=getattr(args, "attention_dropout", 0.1),
        initializer_range=getattr(args, "init_method_std", 0.02),
        activation_function="gelu_new" if fused or getattr(args, "openai_gelu", False) else "gelu",
        layer_norm_epsilon=getattr(args, "layernorm_epsilon", 1e-5),
        architectures=["GPT2LMHeadModel"],
        bos_token_id=None,
        eos_token_id=None,
    )


def _matrix(source: Checkpoint, state: State, name: str) -> tuple[int, int]:
    """Return the sizes of a weight that is a matrix."""
    if state[name].ndim != 2:
        raise CourseError(f"{source.folder}: {name} has shape {tuple(state[name].shape)}, expected a matrix")
    rows, columns = state[name].shape
    return rows, columns


def _use_tokenizer(source: Checkpoint, config: GPT2Config, folder: Path) -> None:
    """Set the special ids and the vocabulary size to those of a tokenizer, if it fits the rows of the checkpoint."""
    loaded = load_tokenizer(folder)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(config, name, getattr(loaded, name))
    entries, padded = 1 + max(loaded.get_vocab().values()), config.vocab_size
    # Megatron pads the rows to a multiple of this number and of the tensor ranks.
    multiple = getattr(source.args, "make_vocab_size_divisible_by", 128)
    if not 0 <= padded - entries <= multiple * max(len(source.ranks), PADDED_FOR):
        raise UsageError(
            f"--tokenizer: has {entries} entries, the checkpoint {padded}, which padding does not explain; "
            "allowed: the tokenizer of its training"
        )
    config.vocab_size = entries


def _names(layers: int) -> Iterator[tuple[str, str, int | None]]:
    """Yield the Megatron name, the GPT-2 name and the split dimension of each weight except the vocabulary."""
    yield POSITIONS, "transformer.wpe.weight", None
    for index in range(layers):
        for theirs, (ours, *split) in LAYER.items():
            for kind, dim in zip(("weight", "bias"), split, strict=True):
                yield f"layers.{index}.{theirs}.{kind}", f"transformer.h.{index}.{ours}.{kind}", dim
    for kind in ("weight", "bias"):
        yield f"final_layernorm.{kind}", f"transformer.ln_f.{kind}", None


def gpt2_weights(source: Checkpoint, config: GPT2Config, padded: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each weight as (GPT-2 name, tensor), merged across ranks and in GPT-2's row and dimension order."""
    with torch.device("meta"):
        sizes = {name: tuple(weight.shape) for name, weight in GPT2LMHeadModel(config).state_dict().items()}
    yield "transformer.wte.weight", _merged(source, WORDS, 0, (padded, config.n_embd))[: config.vocab_size]
    for theirs, ours, dim in _names(config.n_layer):
        # GPT-2's layers hold matrices as [inputs, outputs], Megatron's as [outputs, inputs].
        transposed = theirs.startswith("layers.")
        size = sizes[ours][::-1] if transposed else sizes[ours]
        value = _merged(source, theirs, dim, size)
        if QKV in theirs:
            # From rows ordered by head, then query, key and value, to all queries, all keys, all values.
            value = value.reshape(config.n_head, 3, -1, *size[1:]).movedim(1, 0).reshape(size)
        yield ours, value.t() if transposed else value


def _merged(source: Checkpoint, name: str, dim: int | None, size: tuple[int, ...]) -> torch.Tensor:
    """Return one weight of shape `size`, merged from its ranks, which split it along the dimension `dim`, or not."""
    values = [state[name] for state in source.ranks]
    expected = tuple(n // len(values) if at == dim else n for at, n in enumerate(size))
    for rank, value in enumerate(values):
        if tuple(value.shape) != expected:
            raise CourseError(
                f"{source.folder}: {name} of rank {rank} has shape {tuple(value.shape)}, expected {expected}"
            )
    if dim is not None:
        return torch.cat(values, dim)
    for rank, value in enumerate(values):
        require_copy(source.folder, name, f"tensor rank {rank}", values[0], value)
    return values[0]
