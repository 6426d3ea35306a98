"""Export of a Hugging Face GPT-NeoX or GPT-2 model, with prefixes, to a FasterTransformer folder for N ranks.

    DIR/N-gpu/            the weights, in the format of FasterTransformer's own converters
    DIR/conversion.json   the source, the corrections, and the settings that the format cannot store
    DIR/tokenizer/        the model's tokenizer

The exporter holds one tensor at a time in memory, and never runs the model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.model_folder import write_generation_settings
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.tokenizer_files import copy_tokenizer, has_tokenizer
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, human_size, require_other, write_json
from course_lib.generation.config import CHOOSING
from course_lib.generation.prefix_cache import Shape
from course_lib.language.words import tr
from course_lib.models import frozen_base
from course_lib.notebooks.progress import progress
from course_lib.prefix import files as prefix_files
from course_lib.prefix.files import Prefix
from course_lib.serving import ini, layout, weight_map
from course_lib.serving.ft_source import Corrections, Origin, describe
from course_lib.serving.layout import BIAS_SUM, CONFIG, CONVERSION, SUMMED, TOKENIZER, FtConfig, PrefixTask, TensorSpec


@dataclass(frozen=True)
class FtExport:
    """An exported folder."""

    folder: Path  # DIR/N-gpu, which the engine reads
    config: FtConfig
    files: int
    size: int  # total size [bytes]
    corrected: list[str]
    notes: list[str]

    def summary(self) -> str:
        """Return a one-line summary, followed by one line for each correction and note."""
        lines = [f"{contents(self.config, self.files)} → {self.folder}"]
        lines += [tr("corrected: {what}", what=line) for line in self.corrected]
        return "\n".join(lines + [tr("note: {note}", note=line) for line in self.notes])


def contents(config: FtConfig, files: int) -> str:
    """Return the line on a folder's files, ranks and tasks, for the summaries of export and import."""
    ranks = tr("{number} ranks", number=config.ranks) if config.ranks > 1 else tr("1 rank")
    size = human_size(layout.total_bytes(config))
    line = tr("{files} files, {size} in {dtype} for {ranks}", files=files, size=size, dtype=config.dtype, ranks=ranks)
    names = ", ".join(task.name for task in config.tasks)
    return line + tr(", tasks {names}", names=names) if names else line


def export(
    model: Path,
    target: Path,
    tensor_parallel: int = 1,
    dtype: NumberFormat = "fp32",
    prefixes: Sequence[Prefix] = (),
    corrections: Corrections | None = None,
    name: str | None = None,
) -> FtExport:
    """Export the GPT-NeoX or GPT-2 in a Hugging Face folder to the `target` folder, which is written atomically.

    The prefixes are the tasks, numbered from 0; one without positions is a task without a prefix. `name` is model_name
    in config.ini, by default the model folder's name.
    """
    require_other(model, target)
    corrections = corrections or Corrections()
    origin = describe(model, tensor_parallel, dtype, name, corrections)
    shown = origin.config.model_name
    if shown.splitlines() != [shown] or "\0" in shown:
        raise UsageError(f"--name {shown!r}: would break the line of config.ini; allowed: a text without line breaks")
    values, base_digest = _fitting(prefixes, origin.config, model)
    config = replace(origin.config, tasks=tuple(PrefixTask(name, len(rows)) for name, rows in values.items()))
    if config.family == "gpt" and any(map(len, values.values())):
        # prefix_prompt appears in multi_gpu_gpt/ParallelGptWeight.cc, but not in ParallelGptContextDecoder.cc
        origin.notes.append("FasterTransformer's GPT engine loads prefixes and does not use them; this course's does")
    with atomic_folder(target) as folder:
        weights_folder = folder / f"{tensor_parallel}-gpu"
        weights_folder.mkdir()
        _write(model, weights_folder, replace(origin, config=config), values)
        written = config if corrections.ini or config.family != "gpt" else replace(config, inter_size=4 * config.hidden)
        (weights_folder / CONFIG).write_text(ini.text(written), encoding="utf8")
        if has_tokenizer(model):
            (folder / TOKENIZER).mkdir()
            copy_tokenizer(model, folder / TOKENIZER, config.positions or origin.lacks["max_position_embeddings"])
            # Requests to a server say how they sample; `course ft import` gives the settings back to the model.
            write_generation_settings(model, folder / TOKENIZER, CHOOSING)
        else:
            origin.notes.append(f"{model.resolve().name} has no tokenizer: {TOKENIZER}/ is not written")
        record = {
            # The export may be published, so store only the folder name, not its path on this machine
            "source": model.resolve().name,
            "sha256_of_weights": base_digest,
            "tensor_parallel": tensor_parallel,
            "dtype": dtype,
            "biases_divided_by": origin.biases_divided_by,
            "not_in_the_format": origin.lacks,
            "corrected": origin.corrected,
            "notes": origin.notes,
        }
        write_json(folder / CONVERSION, record)
        sizes = [file.stat().st_size for file in weights_folder.iterdir()]
    return FtExport(target / weights_folder.name, config, len(sizes), sum(sizes), origin.corrected, origin.notes)


def named(argument: str) -> Prefix:
    """Return the prefix for `--prefix [NAME=]FILE`; `NAME=` gives one of no positions, a task without a prefix."""
    name, equals, file = argument.partition("=")
    if not equals or Path(argument).exists():
        name, file = "", argument
    if not file:
        return Prefix(torch.empty(0, 0), name)
    prefix = prefix_files.read(Path(file))
    return replace(prefix, task=name or prefix.task or Path(file).stem)


def _fitting(prefixes: Sequence[Prefix], config: FtConfig, model: Path) -> tuple[dict[str, Tensor], str | None]:
    """Return the prefixes' values [P, L·2·H] by task, and the digest of the weights if any prefix records its base."""
    shape = Shape(config.layers, config.heads, config.head_size)
    digest = frozen_base.digest(model) if any(prefix.base for prefix in prefixes) else None
    values: dict[str, Tensor] = {}
    for prefix in prefixes:
        name = prefix.task
        if not ini.NAME.fullmatch(name):
            raise UsageError(
                f"--prefix {name!r}: cannot be part of a file's name; allowed: letters, digits and . _ + -"
            )
        if name in values:
            raise UsageError(f"--prefix {name}: occurs twice, so both would have the same file; give another NAME=")
        if len(prefix):
            prefix.require(shape, digest if digest == prefix.base else frozen_base.digest(model, prefix.base))
        values[name] = prefix.values
    return values, digest


def _write(model: Path, folder: Path, origin: Origin, prefixes: dict[str, Tensor]) -> None:
    """Write all tensors. Raises CourseError if they do not match the model's configuration or are not finite."""
    config = origin.config
    specs, dtype = layout.weights(config), TORCH[config.dtype]
    with progress(layout.total_bytes(config), "B", "export") as bar:

        def write(spec: TensorSpec, values: Tensor) -> None:
            name = weight_map.full(spec.weight, config.family) if spec.weight else spec.name
            values = weight_files.converted(model, name, values, dtype)
            parts = (values,) if spec.axis is None else values.chunk(config.ranks, spec.axis)
            for file, part in zip(spec.files(config.ranks), parts, strict=True):
                part = part.contiguous()
                part.view(torch.uint8).numpy().tofile(folder / file)
                bar.update(part.nbytes)

        for name, weight in _weights(model, origin, specs):
            values = weight_map.to_ft(weight, specs[name], config)
            if name.endswith(SUMMED):
                full = weight_map.full(name, config.family)
                values = weight_files.converted(model, full, values, dtype) / origin.biases_divided_by
            write(specs[name], values)
            if name == "embed_in.weight" and origin.tied:
                write(specs["lm_head.weight"], values)
        for layer in range(config.layers if config.parallel_residual else 0):
            # Read back: small tensors in memory between large ones would fragment the heap by a tenth of the model
            files = (folder / f"{layout.LAYERS}{layer}.{name}.bin" for name in SUMMED)
            attention, mlp = (torch.from_file(str(file), size=config.hidden, dtype=dtype) for file in files)
            write(TensorSpec(f"{layout.LAYERS}{layer}.{BIAS_SUM}", attention.shape), attention + mlp)
        for task, values in prefixes.items():
            if len(values):
                spec = layout.prefix(config, PrefixTask(task, len(values)))
                write(spec, weight_map.prefix_stored(values, config))


def _weights(model: Path, origin: Origin, specs: dict[str, TensorSpec]) -> Iterator[tuple[str, Tensor]]:
    """Yield the model's weights under their short names, in the layout of the Hugging Face model, one at a time."""
    omitted = "lm_head.weight" if origin.tied or not origin.config.head else None
    missing = specs.keys() - {omitted}
    for full, weight in frozen_base.weights(model):
        name = weight_map.short(full)
        if name == omitted:
            continue
        weight_files.require_float(model, full, weight)
        if name not in specs:
            raise CourseError(f"{model}: {full} is no weight that the format can store")
        if weight.shape != (shape := weight_map.shape(specs[name], origin.config)):
            raise CourseError(f"{model}: {full} has shape {tuple(weight.shape)}, the configuration requires {shape}")
        missing.discard(name)
        yield name, weight.contiguous()
    for name in sorted(missing):
        if not (origin.zero_biases and name.endswith(("query_key_value.bias", "attention.dense.bias"))):
            raise CourseError(f"{model}: lacks {name}, which its configuration requires")
        yield name, torch.zeros(weight_map.shape(specs[name], origin.config))
