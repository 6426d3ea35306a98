"""Checks that compare a FasterTransformer folder with its config.ini.

If a file is missing or has the wrong size, the engine only prints a warning and then runs with uninitialized memory.
The files have no header, so only their sizes can be compared with config.ini. The `values` option also checks the
values themselves.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from course_lib.checkpoints.number_formats import BYTES
from course_lib.errors import CourseError
from course_lib.files import human_size
from course_lib.language.columns import padded
from course_lib.language.words import mark, tr
from course_lib.notebooks.progress import progress
from course_lib.serving import ini, layout
from course_lib.serving.layout import CONFIG, CONVERSION, SUMMED, FtConfig, TensorSpec
from course_lib.serving.reader import numbers, read_conversion

LAYER = re.compile(r"model\.layers\.\d+\.")
# The line for each kind of finding.
KINDS = {
    "config": mark("config: {name}: {problem}"),
    "missing": mark("missing: {name}: {problem}"),
    "short": mark("short: {name}: {problem}"),
    "long": mark("long: {name}: {problem}"),
    "dtype": mark("dtype: {name}: {problem}"),
    "unexpected": mark("unexpected: {name}: {problem}"),
    "heads": mark("heads: {name}: {problem}"),
    "values": mark("values: {name}: {problem}"),
}


@dataclass(frozen=True)
class Finding:
    """One problem found in a FasterTransformer folder."""

    kind: str  # of KINDS
    name: str  # file name
    message: str  # English

    def __str__(self) -> str:
        return tr(KINDS[self.kind], name=self.name, problem=self.message)


@dataclass(frozen=True)
class FileSize:
    """Expected and actual size [bytes] of a file that config.ini requires or that exists in the folder."""

    name: str
    expected: int | None  # None for config.ini and for files that config.ini does not require
    actual: int | None  # None if the file is missing


@dataclass(frozen=True)
class Inspection:
    """The configuration, the files and the problems found in a folder."""

    folder: Path
    config: FtConfig | None  # None if config.ini cannot be read, in which case `files` is empty
    files: list[FileSize]
    findings: list[Finding]

    def lines(self) -> Iterator[str]:
        """Yield the lines of a text report.

        Files that differ only in the layer number, and have the same sizes, share a line.
        """
        if self.config:
            yield from ini.text(self.config).strip().splitlines()
            yield " ".join([padded(tr("expected"), ">15"), padded(tr("actual"), ">15"), " [" + tr("bytes") + "]"])
        rows = Counter((LAYER.sub("model.layers.*.", file.name), file.expected, file.actual) for file in self.files)
        for (name, expected, actual), count in rows.items():
            shown = (" " * 14 + "-" if size is None else f"{size:15,}" for size in (expected, actual))
            yield f"{' '.join(shown)}  {name}{f' × {count}' if count > 1 else ''}"
        if existing := [file.actual for file in self.files if file.actual is not None]:
            sizes = {"files": len(existing), "size": human_size(sum(existing)), "folder": self.folder}
            yield tr("{files} files, {size} in {folder}", **sizes)
        yield from map(str, self.findings)


def inspect(folder: Path, values: bool = False, inter_size: int | None = None) -> Inspection:
    """Compare a FasterTransformer folder with its config.ini.

    Args:
        folder: DIR or DIR/N-gpu.
        values: whether to check every file for NaN and infinity.
        inter_size: the inner size, if config.ini has a wrong one.

    Raises:
        CourseError: if `folder` is missing or does not contain exactly one FasterTransformer folder. Any other problem
            is reported as a finding.
    """
    weights_folder, ranks = layout.find(folder)
    try:
        config, warnings = ini.read(weights_folder, ranks, inter_size)
    except CourseError as error:
        finding = Finding("config", CONFIG, str(error).removeprefix(f"{weights_folder / CONFIG}: "))
        return Inspection(weights_folder, None, [], [finding])
    findings = [Finding("config", CONFIG, warning) for warning in warnings]
    if refused := layout.uneven(config):
        return Inspection(weights_folder, config, [], [*findings, Finding("heads", CONFIG, refused)])
    try:
        read_conversion(weights_folder.resolve().parent / CONVERSION)
    except CourseError as error:
        findings.append(Finding("config", CONVERSION, str(error)))
    specs = {name: spec for spec in layout.tensors(config) for name in spec.files(ranks)}
    files = list(_sizes(weights_folder, specs, config))
    findings += _compare(files, specs, config)
    if values:
        findings += _values(weights_folder, files, config)
    return Inspection(weights_folder, config, files, findings)


def _sizes(folder: Path, specs: dict[str, TensorSpec], config: FtConfig) -> Iterator[FileSize]:
    for name, spec in specs.items():
        path = folder / name
        yield FileSize(name, spec.size(config), path.stat().st_size if path.is_file() else None)
    for path in sorted(folder.iterdir()):
        if path.name not in specs:
            yield FileSize(path.name, None, path.stat().st_size)


def _compare(files: list[FileSize], specs: dict[str, TensorSpec], config: FtConfig) -> Iterator[Finding]:
    factor, other = 0.5, tr("half the bytes: fp16 or bf16")
    if BYTES[config.dtype] == 2:
        factor, other = 2, tr("twice the bytes: fp32")

    def mistyped(file: FileSize) -> bool:
        return file.expected is not None and file.actual is not None and 0 < file.actual == file.expected * factor

    existing = [file for file in files if file.expected is not None and file.actual is not None]
    all_mistyped = bool(existing) and all(map(mistyped, existing))
    if all_mistyped:
        yield Finding(
            "dtype", CONFIG, tr("every file has {other}, but config.ini says {dtype}", other=other, dtype=config.dtype)
        )
    for file in files:
        if file.name == CONFIG:
            continue
        if file.expected is None:
            yield Finding("unexpected", file.name, tr("config.ini does not require this file"))
        elif file.actual is None:
            yield Finding("missing", file.name, tr("expected {size:,} bytes", size=file.expected))
        elif file.actual != file.expected and not all_mistyped:
            kind = "dtype" if mistyped(file) else "short" if file.actual < file.expected else "long"
            shape = list(specs[file.name].part(config.ranks))
            sizes = {"actual": file.actual, "expected": file.expected, "shape": shape, "dtype": config.dtype}
            found = tr("{actual:,} bytes, expected {expected:,} ({shape} of {dtype})", **sizes)
            yield Finding(kind, file.name, f"{found}: {other}?" if kind == "dtype" else found)


def _values(folder: Path, files: list[FileSize], config: FtConfig) -> Iterator[Finding]:
    whole = {file.name: file.actual for file in files if file.actual is not None and file.actual == file.expected}
    with progress(sum(whole.values()), "B", "values") as bar:
        for name in whole:
            values = numbers(folder / name, config.dtype)
            bar.update(values.nbytes)
            if not all(map(torch.isfinite, torch.aminmax(values))):
                count = int((~torch.isfinite(values)).sum())
                yield Finding(
                    "values", name, tr("{count:,} of {all:,} numbers are NaN or infinite", count=count, all=len(values))
                )
    for layer in range(config.layers if config.parallel_residual else 0):
        names = [f"model.layers.{layer}.{name}.bin" for name in ("mlp.attention.bias.sum", *SUMMED)]
        if whole.keys() >= set(names):
            total, attention, mlp = (numbers(folder / name, config.dtype) for name in names)
            if not torch.equal(total, attention + mlp):
                first, second = SUMMED
                message = tr(
                    "is not the sum of {first} and {second}; the engine reads the sum", first=first, second=second
                )
                yield Finding("values", names[0], message)
