"""Conversion of Megatron GPT checkpoints to Hugging Face GPT-2 folders, including the tokenizer.

The weights are bit-for-bit identical unless another dtype is requested. The converter removes padding rows from the
vocabulary. Sizes come from the tensor shapes, the activation function and dropout rates from the training arguments,
and the bos, eos and pad ids from the tokenizer. Weights are merged and written one at a time.
"""

from argparse import Namespace
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path

import torch
from transformers import GenerationConfig, GPT2Config

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.model_folder import load_tokenizer
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.tokenizer_files import copy_tokenizer
from course_lib.checkpoints.torch_dtypes import NAMES, TORCH, torch_name
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, require_other, write_json
from course_lib.language.words import tr
from course_lib.models.gpt2 import GPT2
from course_lib.pretrain.megatron_checkpoint import Checkpoint, open_checkpoint
from course_lib.pretrain.megatron_weights import MegatronSizes, gpt2_weights, model_sizes

SHARD = 5_000_000_000  # maximum bytes of weights in one safetensors file


@dataclass(frozen=True)
class ConvertReport:
    """The result of a conversion."""

    target: Path
    sizes: MegatronSizes
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
            **vars(self) | vars(self.sizes),
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
    """Convert a Megatron-DeepSpeed or Megatron-LM checkpoint to a Hugging Face GPT-2 folder.

    The tokenizer sets the bos, eos and pad ids and, unless `vocab_size` does, how many entries are kept. `dtype` None
    keeps the checkpoint's. `checkpoint_version` and `heads` are for checkpoints that do not record them.
    """
    for source_folder in (checkpoint, tokenizer):
        if source_folder:
            require_other(source_folder, target)
    with atomic_folder(target) as folder:
        source = open_checkpoint(checkpoint)
        version = source.version if checkpoint_version is None else checkpoint_version
        if version not in (0, 1) and version < 2:
            raise UsageError(f"--checkpoint-version: {version:g} is not allowed; allowed: 0, 1, or 2 and above")
        specials, entries = _tokenizer(tokenizer) if tokenizer else ({}, None)
        sizes = model_sizes(source, heads, entries, vocab_size)
        wanted = TORCH[dtype] if dtype else _dtype(source)
        weights = ((name, value.to(wanted)) for name, value in gpt2_weights(source, sizes, version))
        parameters = weight_files.write(weights, folder, SHARD)
        config = _config(source.args, sizes, specials, wanted)
        config.save_pretrained(folder)
        GenerationConfig.from_model_config(config).save_pretrained(folder)
        if tokenizer:
            copy_tokenizer(tokenizer, folder, config.n_positions)
        report = ConvertReport(
            target, sizes, config.activation_function, torch_name(wanted), parameters,
            len(source.ranks), version, source.iteration,
            tokenizer.name if tokenizer else None, specials.get("eos_token_id"),
        )  # fmt: skip
        write_json(
            folder / "conversion.json", {"checkpoint": str(source.folder)} | asdict(report) | {"target": str(target)}
        )
    return report


def _activation(args: Namespace) -> str:
    """Return the transformers name for the activation function used in Megatron training.

    Megatron uses the tanh approximation for its fused bias+GELU and for `openai_gelu`, and the exact GELU otherwise.
    """
    fused = getattr(args, "bias_gelu_fusion", True) and not getattr(args, "onnx_safe", False)
    return "gelu_new" if fused or getattr(args, "openai_gelu", False) else "gelu"


def _config(args: Namespace, sizes: MegatronSizes, specials: dict[str, int | None], dtype: torch.dtype) -> GPT2Config:
    settings = {
        "vocab_size": sizes.vocabulary,
        "max_position_embeddings": sizes.positions,
        "hidden_size": sizes.hidden,
        "num_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "ffn_hidden_size": sizes.inner,
        "hidden_dropout_prob": getattr(args, "hidden_dropout", 0.1),
        "attention_probs_dropout_prob": getattr(args, "attention_dropout", 0.1),
        "initializer_range": getattr(args, "init_method_std", 0.02),
    }
    return GPT2Config(
        **GPT2.renamed(settings),
        activation_function=_activation(args),
        layer_norm_epsilon=getattr(args, "layernorm_epsilon", 1e-5),
        dtype=dtype,
        architectures=["GPT2LMHeadModel"],
        bos_token_id=specials.get("bos_token_id"),
        eos_token_id=specials.get("eos_token_id"),
        pad_token_id=specials.get("pad_token_id"),
    )


def _dtype(source: Checkpoint) -> torch.dtype:
    """Return a dtype that can represent every weight in the checkpoint.

    With Megatron's --embedding-weights-in-fp32 option, the layers have a narrower dtype than the embedding.
    """
    kinds = {value.dtype for value in source.ranks[0].values()}
    dtype = reduce(torch.promote_types, kinds)
    if dtype not in NAMES:
        raise CourseError(f"{source.folder}: weights in {dtype}; allowed: float32, bfloat16, float16")
    return dtype


def _tokenizer(folder: Path) -> tuple[dict[str, int | None], int]:
    """Return a tokenizer's bos, eos and pad ids, and its number of entries (the largest id + 1)."""
    if not folder.is_dir():
        raise CourseError(f"{folder}: no such folder, expected a tokenizer")
    loaded = load_tokenizer(folder)
    ids = {name: getattr(loaded, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return ids, 1 + max(loaded.get_vocab().values())
