"""Conversion of Megatron-DeepSpeed GPT checkpoints to Hugging Face GPT-2 folders, including the tokenizer.

The weights are bit-for-bit identical unless another dtype is requested; padding rows of the vocabulary are removed.
Sizes come from the tensor shapes, the activation function and dropout rates from the training arguments, and the
special ids from the tokenizer. Weights are merged and written one at a time.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path

import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.model_folder import load_tokenizer
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.tokenizer_files import copy_tokenizer
from course_lib.checkpoints.torch_dtypes import TORCH, torch_name
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, require_other, write_json
from course_lib.language.words import tr
from course_lib.pretrain.megatron_checkpoint import Checkpoint, open_checkpoint

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
# Training arguments that change the model without changing the names of its weights, and the values that GPT-2 needs.
NEEDED = {
    "untie_embeddings_and_output_weights": False,
    "swiglu": False,
    "squared_relu": False,
    "apply_layernorm_1p": False,
    "apply_residual_connection_post_layernorm": False,
}


@dataclass(frozen=True)
class ConvertReport:
    """The result of a conversion."""

    target: Path
    sizes: dict[str, int]
    activation: str
    dtype: str
    parameters: int
    tensor_parallel: int
    checkpoint_version: float
    iteration: int
    tokenizer: str | None
    eos_token_id: int | None

    def summary(self) -> str:
        """Return the report for the terminal: one line, and one about what is missing from the folder."""
        note = ""
        if self.tokenizer is None:
            note = tr(
                "without --tokenizer the folder has no tokenizer and eos_token_id is null: `course generate`, "
                "`course prefix train` and `course ct2 export` need the first, `course ft export` the second"
            )
        elif self.eos_token_id is None:
            note = tr("the tokenizer names no eos_token, so eos_token_id is null: the verbs that generate need one")
        line = tr(
            "{layers} layers × {hidden}, {heads} heads, vocabulary {padded} → {vocabulary}, {activation}, "
            "{parameters:,} parameters in {dtype}; from step {iteration}, tensor ranks: {tensor_parallel}, checkpoint "
            "version {checkpoint_version:g} → {target}",
            **vars(self) | self.sizes,
        )
        return f"{line}\n{note}".rstrip()


def convert(
    checkpoint: Path,
    target: Path,
    tokenizer: Path | None = None,
    *,
    dtype: NumberFormat | None = None,
    checkpoint_version: float | None = None,
    heads: int | None = None,
    vocab_size: int | None = None,
) -> ConvertReport:
    """Convert a Megatron-DeepSpeed checkpoint to a Hugging Face GPT-2 folder.

    The tokenizer sets the special ids and, unless `vocab_size` does, how many entries are kept. `dtype` None keeps the
    checkpoint's. `checkpoint_version` and `heads` are for checkpoints that do not record them.
    """
    for read_only in filter(None, (checkpoint, tokenizer)):
        require_other(read_only, target)
    with atomic_folder(target) as folder:
        source = open_checkpoint(checkpoint)
        version = source.version if checkpoint_version is None else checkpoint_version
        if version not in (0, 1) and version < 2:
            raise UsageError(f"--checkpoint-version: {version:g} is not allowed; allowed: 0, 1, or 2 and above")
        config = _config(source, heads)
        entries = _use_tokenizer(config, tokenizer) if tokenizer else None
        padded = config.vocab_size
        config.vocab_size = _vocabulary(source, padded, entries, vocab_size)
        # With Megatron's --embedding-weights-in-fp32, the layers have a narrower dtype than the embedding.
        kinds = (value.dtype for value in source.ranks[0].values())
        config.dtype = TORCH[dtype] if dtype else reduce(torch.promote_types, kinds)
        weights = ((name, value.to(config.dtype)) for name, value in gpt2_weights(source, config, padded, version))
        parameters = weight_files.write(weights, folder, SHARD)
        config.save_pretrained(folder)
        GenerationConfig.from_model_config(config).save_pretrained(folder)
        if tokenizer:
            copy_tokenizer(tokenizer, folder, config.n_positions)
        sizes = {
            "hidden": config.n_embd, "heads": config.n_head, "inner": config.n_inner, "positions": config.n_positions,
            "layers": config.n_layer, "padded": padded, "vocabulary": config.vocab_size,
        }  # fmt: skip
        report = ConvertReport(
            target, sizes, config.activation_function, torch_name(config.dtype), parameters,
            len(source.ranks), version, source.iteration, tokenizer.name if tokenizer else None, config.eos_token_id,
        )  # fmt: skip
        write_json(folder / "conversion.json", {"checkpoint": str(source.folder)} | asdict(report))
    return report


def _config(source: Checkpoint, heads: int | None) -> GPT2Config:
    """Return the configuration of a checkpoint that GPT-2 has a place for, with all rows and without special ids."""
    args, ranks, first = source.args, len(source.ranks), source.ranks[0]
    for name, needed in NEEDED.items():
        if (value := getattr(args, name, needed)) != needed:
            raise CourseError(f"{source.folder}: trained with {name}={value}, which GPT-2 has no place for")
    numbers = [int(match[1]) for name in first if (match := re.match(r"layers\.(\d+)\.", name))]
    layers = getattr(args, "num_layers", max(numbers, default=0) + 1)
    wanted = {WORDS, *(theirs for theirs, _, _ in _names(layers))}
    for rank, state in enumerate(source.ranks):
        extra, missing = sorted(state.keys() - wanted), sorted(wanted - state.keys())
        if extra or missing:
            problem = f"GPT-2 has no place for {', '.join(extra[:3])}" if extra else f"{', '.join(missing[:3])} missing"
            raise CourseError(f"{source.folder}: tensor rank {rank}: {problem}")
    (rows, hidden), positions = first[WORDS].shape, first[POSITIONS].shape[0]
    recorded = getattr(args, "num_attention_heads", None)
    heads = heads or recorded
    if not heads or recorded not in (None, heads):
        raise UsageError(f"--heads: {heads} is not allowed: the checkpoint records {recorded}; one of them must be set")
    if hidden % heads or heads % ranks:
        raise UsageError(f"--heads: {heads} must divide the width {hidden} and be a multiple of the {ranks} ranks")
    dropout = getattr(args, "hidden_dropout", 0.1)
    # Megatron uses the tanh approximation for its fused bias+GELU and for `openai_gelu`, and the exact GELU otherwise.
    fused = getattr(args, "bias_gelu_fusion", True) and not getattr(args, "onnx_safe", False)
    return GPT2Config(
        vocab_size=rows * ranks,
        n_positions=positions,
        n_embd=hidden,
        n_layer=layers,
        n_head=heads,
        n_inner=first["layers.0.mlp.dense_h_to_4h.weight"].shape[0] * ranks,
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


def _use_tokenizer(config: GPT2Config, folder: Path) -> int:
    """Set the special ids to those of a tokenizer, and return its number of entries (the largest id + 1)."""
    loaded = load_tokenizer(folder)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(config, name, getattr(loaded, name))
    return int(1 + max(loaded.get_vocab().values()))


def _vocabulary(source: Checkpoint, padded: int, entries: int | None, vocab_size: int | None) -> int:
    """Return how many of the `padded` rows to keep: `vocab_size` if set, else the tokenizer's `entries`, else all."""
    kept = vocab_size or entries or padded
    if not (entries or 1) <= kept <= padded:
        raise UsageError(
            f"--vocab-size: {kept} is not allowed: the tokenizer has {entries or 1} entries, the checkpoint {padded}"
        )
    # Megatron pads the rows to a multiple of this number and of the tensor ranks.
    multiple = getattr(source.args, "make_vocab_size_divisible_by", 128)
    if not vocab_size and padded - kept > multiple * max(len(source.ranks), PADDED_FOR):
        raise UsageError(
            f"--tokenizer: has {kept} entries, the checkpoint {padded}, more than padding explains; "
            f"if it is the right one, give --vocab-size {kept}"
        )
    return kept


def _names(layers: int) -> Iterator[tuple[str, str, int | None]]:
    """Yield the Megatron name, the GPT-2 name and the split dimension of each weight except the vocabulary."""
    yield POSITIONS, "transformer.wpe.weight", None
    for index in range(layers):
        for theirs, (ours, *split) in LAYER.items():
            for kind, dim in zip(("weight", "bias"), split, strict=True):
                yield f"layers.{index}.{theirs}.{kind}", f"transformer.h.{index}.{ours}.{kind}", dim
    for kind in ("weight", "bias"):
        yield f"final_layernorm.{kind}", f"transformer.ln_f.{kind}", None


def gpt2_weights(
    source: Checkpoint, config: GPT2Config, padded: int, version: float
) -> Iterator[tuple[str, torch.Tensor]]:
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
            # The order of the rows: rank, 3, row in version 0; row, 3 in version 1; head, 3, row since version 2.
            order = (len(source.ranks), 3, -1) if version == 0 else (-1, 3) if version == 1 else (config.n_head, 3, -1)
            value = value.reshape(*order, *size[1:]).movedim(1, 0).reshape(size)
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
    return values[0] if dim is None else torch.cat(values, dim)
