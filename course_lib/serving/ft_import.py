"""Import of a FasterTransformer folder: the way back to a Hugging Face folder, bit for bit.

    MODEL/                  config.json, weights, tokenizer
    MODEL/prefixes/         one prefix file for each task that has a prefix
    MODEL/conversion.json   where every setting came from, the tasks in order, and the command that exports them again

Writing holds at most one file of weight_files.SHARD bytes in memory. Three things do not return as they were: settings
that the format does not store, biases that were divided by a number of ranks that is no power of two (one rounding),
and a start id that the source did not have (the exporter writes the end id).
"""

import filecmp
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import GenerationConfig

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.model_folder import load_tokenizer
from course_lib.checkpoints.tokenizer_files import copy_tokenizer
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, require_other, write_json
from course_lib.generation.prefix_cache import Shape
from course_lib.language.words import tr
from course_lib.models import frozen_base
from course_lib.notebooks.progress import progress
from course_lib.prefix import files as prefix_files
from course_lib.prefix.files import Prefix
from course_lib.serving import check, ini, layout, reader, weight_map
from course_lib.serving.export import contents
from course_lib.serving.ft_settings import Given, Setting, divisor_of, read_conversion, settings_of
from course_lib.serving.layout import CONVERSION, SUMMED, TOKENIZER, FtConfig

PREFIXES = "prefixes"
# Left to transformers, or to the defaults of a new configuration
NOT_STORED = "attention masks, rotary frequencies, dropout rates, initializer range, whether the source had a start id"


@dataclass(frozen=True)
class FtImport:
    """An imported model."""

    folder: Path
    config: FtConfig
    files: int  # files read
    size: int  # their total size [bytes]
    parameters: int
    settings: dict[str, Setting]
    notes: list[str]

    def summary(self) -> str:
        """Return a one-line summary, followed by one line for the assumed settings and one for each note."""
        number = tr("{number:,} parameters", number=self.parameters)
        lines = [f"{contents(self.config, self.files, self.size)}: {number} → {self.folder}"]
        assumed = [f"{key} = {found.value}" for key, found in self.settings.items() if found.source == "default"]
        if assumed:
            lines.append(tr("assumed, as the folder does not say: {settings}", settings=", ".join(assumed)))
        return "\n".join(lines + [tr("note: {note}", note=note) for note in self.notes])


def import_folder(
    source: Path,
    target: Path,
    tokenizer: Path | None = None,
    given: Given = Given(),  # noqa: B008  # frozen
) -> FtImport:
    """Write the model in DIR or DIR/N-gpu as a Hugging Face folder, atomically, in the stored dtype.

    `tokenizer` replaces DIR/tokenizer; `given` overrides what the folder records.
    """
    weights_folder, ranks = layout.find(source)
    for read_only in (weights_folder, tokenizer):
        if read_only:
            require_other(read_only, target)
    config, notes = ini.read(weights_folder, ranks, given.inter_size)
    _require_whole(weights_folder, config)
    parent = weights_folder.resolve().parent
    conversion = read_conversion(parent)
    settings = settings_of(config, conversion, given)
    divisor = divisor_of(weights_folder, config, conversion, given.biases_divided_by)
    if divisor is None:
        raise UsageError(
            f"--biases-divided-by: not given, and {weights_folder.parent} has no {CONVERSION} that records it; "
            f"allowed: {ranks} (huggingface_gptneox_convert.py divides {' and '.join(SUMMED)} by it), 1 (undivided)"
        )
    shape = _hf_config(config, settings, weights_folder)
    tokenizer = tokenizer or (parent / TOKENIZER if (parent / TOKENIZER).is_dir() else None)
    if not tokenizer:
        notes.append(f"no {TOKENIZER}/ and no --tokenizer: the model cannot encode text")
    elif padding := config.vocab_size - _entries(tokenizer, config):
        notes.append(f"{padding} of {config.vocab_size} rows of the vocabulary are no tokens; they are kept")
    if divisor & (divisor - 1):
        notes.append(f"biases are multiplied by {divisor}, no power of two: up to one rounding from the source's")
    size = layout.total_bytes(config)
    with atomic_folder(target) as folder:
        with progress(size, "B", "import") as bar:
            weights = _weights(weights_folder, config, divisor, bool(shape.tie_word_embeddings), bar)
            parameters = weight_files.write(weights, folder, weight_files.SHARD)
        shape.save_pretrained(folder)
        GenerationConfig.from_model_config(shape).save_pretrained(folder)
        if tokenizer:
            copy_tokenizer(tokenizer, folder, shape.max_position_embeddings)
        digest = frozen_base.digest(folder)
        if digest == conversion.get("sha256_of_weights"):
            notes.append(f"the same weights, bit for bit, as {conversion.get('source')} before its export")
        record = {
            "source": f"{parent.name}/{weights_folder.resolve().name}",
            "format": f"FasterTransformer [{config.family}]",
            "model_name": config.model_name,
            "tensor_parallel": ranks,
            "dtype": config.dtype,
            "settings": {key: {"value": found.value, "from": found.source} for key, found in settings.items()},
            "not_stored": NOT_STORED,
            "biases_multiplied_by": divisor,
            "tasks": _prefixes(weights_folder, config, folder, digest),
            "sha256_of_weights": digest,
            "export_again": _command(config, divisor),
            "notes": notes,
        }
        write_json(folder / CONVERSION, record)
    files = sum(len(spec.files(ranks)) for spec in layout.tensors(config)) + 1
    return FtImport(target, config, files, size, parameters, settings, notes)


def _require_whole(folder: Path, config: FtConfig) -> None:
    """Raise CourseError if a file is missing, has the wrong size, or would be lost by the import."""
    findings = check.inspect(folder, inter_size=config.inter_size).findings
    lost = [one for one in findings if one.kind != "config" and (one.kind != "unexpected" or ".bin" in one.name)]
    if lost:
        more = f" ({len(lost) - 1} more: course ft inspect {folder})" if len(lost) > 1 else ""
        raise CourseError(f"{folder}/{lost[0].name}: {lost[0].kind}: {lost[0].message}{more}")


def _hf_config(config: FtConfig, settings: dict[str, Setting], folder: Path) -> Any:
    """Return the configuration for config.json."""
    shape = reader.hf_config(config, settings, folder.resolve().parent)
    shape.dtype = TORCH[config.dtype]
    if config.family == "gpt":
        shape.architectures = ["GPT2LMHeadModel"]
        return shape
    shape.architectures = ["GPTNeoXForCausalLM"]
    # A GPT-NeoX folder always has an lm_head; it is the embedding if the files are equal
    shape.tie_word_embeddings = filecmp.cmp(
        folder / "model.wte.bin", folder / "model.lm_head.weight.bin", shallow=False
    )
    # For transformers 4, which otherwise assumes 0.25
    shape.rotary_pct = shape.rope_parameters["partial_rotary_factor"]
    shape.rotary_emb_base = shape.rope_parameters["rope_theta"]
    return shape


def _entries(tokenizer: Path, config: FtConfig) -> int:
    """Return the number of a tokenizer's entries. Raises CourseError if it does not fit the model."""
    entries = len(load_tokenizer(tokenizer))
    if entries > config.vocab_size:
        raise CourseError(f"{tokenizer}: {entries} tokens, but the model has {config.vocab_size} rows: another model's")
    return entries


def _weights(folder: Path, config: FtConfig, divisor: int, tied: bool, bar: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights under their Hugging Face names, one at a time."""
    for name, tensor in reader.weights(folder, config, divisor):
        bar.update(tensor.nbytes)
        if not (tied and name == "lm_head.weight"):
            yield weight_map.full(name, config.family), tensor


def _prefixes(folder: Path, config: FtConfig, target: Path, digest: str) -> list[dict[str, Any]]:
    """Write a prefix file for each task, and return what the record says about the tasks, in task order."""
    shape, entries = Shape(config.layers, config.heads, config.head_size), []
    for task in config.tasks:
        file = f"{PREFIXES}/{task.name}.safetensors" if task.length else None
        if file:
            # fp32 represents every fp16 and bf16 value, so the prefix file loses nothing
            values = reader.prefix(folder, config, task).float()
            prefix_files.write(Prefix(values, task.name, digest, shape), target / file)
        entries.append({"name": task.name, "length": task.length, "file": file})
    return entries


def _command(config: FtConfig, divisor: int) -> str:
    """Return the command that exports the model to the same files again; MODEL and DIR are placeholders."""
    words = ["course ft export MODEL -o DIR --tensor-parallel", str(config.ranks), "--dtype", config.dtype]
    words += ["--name", json.dumps(config.model_name, ensure_ascii=False)]
    if config.family == "gptneox" and not config.parallel_residual and divisor > 1:
        words.append("--upstream-bias-scaling")
    if config.family == "gpt" and config.layernorm_eps is None:
        words.append("--upstream-ini")
    for task in config.tasks:
        words += ["--prefix", f"{task.name}=" + (f"MODEL/{PREFIXES}/{task.name}.safetensors" if task.length else "")]
    return " ".join(words)
