"""Import of a FasterTransformer folder: the way back to a Hugging Face folder, bit for bit.

    MODEL/                  config.json, weights, tokenizer
    MODEL/prefixes/         one prefix file for each task that has a prefix
    MODEL/conversion.json   where every setting came from, the tasks in order, and the command that exports them again

Reading holds one tensor at a time, writing at most one file of weight_files.SHARD bytes. Three things do not return as
they were: settings that the format does not store, biases that were divided by a number of ranks that is no power of
two (one rounding), and a start id that the source did not have (the exporter writes the end id).
"""

import filecmp
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.activations import ACT2FN

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.model_folder import load_tokenizer
from course_lib.checkpoints.tokenizer_files import copy_tokenizer
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import CourseError, one_line
from course_lib.files import atomic_folder, human_size, require_other, write_json
from course_lib.generation.prefix_cache import Shape
from course_lib.language.words import tr
from course_lib.models import frozen_base
from course_lib.notebooks.progress import progress
from course_lib.prefix import files as prefix_files
from course_lib.prefix.files import Prefix
from course_lib.serving import check, ini, layout, reader, weight_map
from course_lib.serving.check import Finding
from course_lib.serving.ft_settings import KEYS, Given, Setting, divisor_of, settings_of
from course_lib.serving.layout import CONVERSION, SUMMED, TOKENIZER, FtConfig, TensorSpec

PREFIXES = "prefixes"
# Left to transformers, or to the defaults of a new configuration
NOT_STORED = "attention masks, rotary frequencies, dropout rates, initializer range, whether the source had a start id"


@dataclass(frozen=True)
class Report:
    """Summary of an import."""

    folder: Path
    config: FtConfig
    files: int  # files read
    size: int  # their total size [bytes]
    parameters: int
    settings: dict[str, Setting]
    notes: list[str]

    def summary(self) -> str:
        """Return a one-line summary, followed by one line for the assumed settings and one for each note."""
        facts = {"files": self.files, "size": human_size(self.size), "dtype": self.config.dtype, "folder": self.folder}
        facts |= {"ranks": tr("{number} ranks", number=self.config.ranks) if self.config.ranks > 1 else tr("1 rank")}
        facts |= {"parameters": self.parameters}
        if self.config.tasks:
            facts |= {"tasks": ", ".join(task.name for task in self.config.tasks)}
            lines = [
                tr(
                    "{files} files, {size} in {dtype} of {ranks}, tasks {tasks}: {parameters:,} parameters → {folder}",
                    **facts,
                )
            ]
        else:
            lines = [tr("{files} files, {size} in {dtype} of {ranks}: {parameters:,} parameters → {folder}", **facts)]
        assumed = [f"{key} = {found.value}" for key, found in self.settings.items() if found.source == "default"]
        if assumed:
            lines.append(tr("assumed, as the folder does not say: {settings}", settings=", ".join(assumed)))
        return "\n".join([*lines, *(tr("note: {note}", note=note) for note in self.notes)])


def import_folder(
    source: Path,
    target: Path,
    tokenizer: Path | None = None,
    given: Given = Given(),  # noqa: B008  # frozen
) -> Report:
    """Write the model of a FasterTransformer folder as a Hugging Face folder, atomically, in the stored dtype.

    Args:
        source: DIR or DIR/N-gpu, a GPT-NeoX or a GPT-2.
        target: the model folder to write.
        tokenizer: folder of the tokenizer; None: DIR/tokenizer if it exists, else the model has none.
        given: settings that override what the folder records.

    Raises:
        CourseError: if a file is missing, has the wrong size, does not belong to the folder's family, or contradicts
            another file.
        UsageError: if an option does not fit the model, or the divisor of the biases is neither recorded nor given.
    """
    weights_folder, ranks = layout.find(source)
    for read_only in (weights_folder, tokenizer):
        if read_only:
            require_other(read_only, target)
    config, notes = ini.read(weights_folder, ranks, given.inter_size)
    _require_whole(weights_folder, config)
    parent = weights_folder.resolve().parent
    conversion = reader.read_conversion(parent / CONVERSION)
    settings = settings_of(config, conversion, given)
    divisor = divisor_of(weights_folder, config, conversion, given)
    _require_sums(weights_folder, config)
    shape = _hf_config(config, settings, parent, tied=_tied(weights_folder, config))
    tokenizer = tokenizer or (parent / TOKENIZER if (parent / TOKENIZER).is_dir() else None)
    if tokenizer:
        if padding := config.vocab_size - _entries(tokenizer, config):
            notes.append(f"{padding} of {config.vocab_size} rows of the vocabulary are no tokens; they are kept")
    else:
        notes.append(f"no {TOKENIZER}/ and no --tokenizer: the model cannot encode text")
    if divisor & (divisor - 1):
        notes.append(f"biases are multiplied by {divisor}, no power of two: up to one rounding from the source's")
    specs = layout.tensors(config)
    size = sum(len(spec.files(ranks)) * spec.size(config) for spec in specs)
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
    files = sum(len(spec.files(ranks)) for spec in specs) + 1
    return Report(target, config, files, size, parameters, settings, notes)


def _require_whole(folder: Path, config: FtConfig) -> None:
    """Raise CourseError if a file is missing, has the wrong size, or would be lost by the import."""
    found = [
        _problem(finding, folder, config) for finding in check.inspect(folder, inter_size=config.inter_size).findings
    ]
    problems = [problem for problem in found if problem]
    if problems:
        problem = f"{folder}/{problems[0]}"
        more = len(problems) - 1
        raise CourseError(f"{problem} ({more} more: course ft inspect {folder})" if more else problem)


def _problem(finding: Finding, folder: Path, config: FtConfig) -> str | None:
    """Return why a finding prevents the import, or None if it does not."""
    if finding.kind == "missing":
        return f"{finding.name}: no such file, {finding.message}"
    if finding.kind != "unexpected":
        return None if finding.kind == "config" else f"{finding.name}: {finding.message}"
    if not finding.name.endswith(".bin"):
        return None
    size = (folder / finding.name).stat().st_size
    # A copy for one rank of a tensor that the format stores once
    name, _, rank = finding.name.removesuffix(".bin").rpartition(".")
    shared = {spec.name: spec for spec in layout.tensors(config) if spec.axis is None}
    if name not in shared or not rank.isdigit():
        ranks = f"{config.ranks} ranks" if config.ranks > 1 else "1 rank"
        return f"{finding.name}: {size:,} bytes, but a [{config.family}] folder for {ranks} has no such file"
    if filecmp.cmp(folder / finding.name, folder / f"{name}.bin", shallow=False):
        return None
    usual = shared[name].size(config)
    return f"{finding.name}: rank {rank} differs from {name}.bin ({size:,} bytes, {usual:,} bytes)"


def _require_sums(folder: Path, config: FtConfig) -> None:
    """Raise CourseError if a stored sum of two biases, the only one that the engine reads, is not their sum."""
    for layer in range(config.layers if config.parallel_residual else 0):
        specs = [
            TensorSpec(f"model.layers.{layer}.{name}", (config.hidden,)) for name in ("mlp.attention.bias.sum", *SUMMED)
        ]
        total, attention, mlp = (reader.read_parts(folder, spec, config)[0] for spec in specs)
        if not torch.equal(total, attention + mlp):
            first, second = (f"{spec.name}.bin" for spec in specs[1:])
            size = specs[0].size(config)
            raise CourseError(
                f"{folder / specs[0].files(1)[0]}: its {size:,} bytes are not the sum of {first} and {second}"
            )


def _tied(folder: Path, config: FtConfig) -> bool:
    """Return whether the output layer is the embedding.

    A GPT-2 folder then has no lm_head. A GPT-NeoX folder always has one; it is the embedding if the files are equal.
    """
    if config.family == "gpt":
        return not config.head
    return filecmp.cmp(folder / "model.wte.bin", folder / "model.lm_head.weight.bin", shallow=False)


def _hf_config(config: FtConfig, settings: Mapping[str, Setting], parent: Path, tied: bool) -> Any:
    """Return the configuration for config.json. Raises CourseError if conversion.json has an impossible value."""
    activation = settings[KEYS[config.family]["activation"]].value
    try:
        shape = reader.hf_config(config, {key: found.value for key, found in settings.items()})
        if activation not in ACT2FN:
            raise ValueError(f"activation {activation} is unknown")
    except (KeyError, TypeError, ValueError) as error:
        raise CourseError(f"{parent / CONVERSION}: {one_line(error)}") from error
    shape.tie_word_embeddings, shape.dtype = tied, TORCH[config.dtype]
    shape.architectures = ["GPTNeoXForCausalLM" if config.family == "gptneox" else "GPT2LMHeadModel"]
    if config.family == "gptneox":
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
    for name, piece in weight_map.pieces(config).items():
        if tied and name == "lm_head.weight":
            continue
        tensor = weight_map.restored(reader.read_parts(folder, piece.spec, config), piece, config)
        if divisor > 1 and name.endswith(SUMMED):
            tensor *= divisor
        yield weight_map.full(name, config.family), tensor
        bar.update(tensor.nbytes)


def _prefixes(folder: Path, config: FtConfig, target: Path, digest: str) -> list[dict[str, Any]]:
    """Write a prefix file for each task, and return what the record says about the tasks, in task order."""
    shape, entries = Shape(config.layers, config.heads, config.head_size), []
    for task in config.tasks:
        file = f"{PREFIXES}/{task.name}.safetensors" if task.length else None
        if file:
            values = weight_map.prefix_values(reader.read_parts(folder, layout.prefix(config, task), config))
            # fp32 represents every fp16 and bf16 value, so the prefix file loses nothing
            prefix_files.write(Prefix(values.float(), task.name, digest, shape), target / file)
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
