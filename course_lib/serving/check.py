"""Checks that compare a FasterTransformer folder with its config.ini.

If a file is missing or has the wrong size, the engine only prints a warning and then runs with uninitialized memory.
The files have no header, so only their sizes can be compared with config.ini. The `values` option also checks the
values themselves.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from course_lib.checkpoints.number_formats import BYTES
from course_lib.errors import CourseError
from course_lib.files import human_size
from course_lib.language.columns import padded
from course_lib.language.words import mark, tr
from course_lib.notebooks.progress import progress
from course_lib.serving import ini, layout
from course_lib.serving.ft_settings import read_conversion
from course_lib.serving.layout import CONFIG, CONVERSION, SUMMED, FtConfig
from course_lib.serving.reader import numbers, wrong_sums

LAYER = re.compile(r"model\.layers\.\d+\.")
# The line for each kind of finding.
KINDS = {
    "config": mark("config: {name}: {problem}"),
    "heads": mark("heads: {name}: {problem}"),
    "missing": mark("missing: {name}: {problem}"),
    "short": mark("short: {name}: {problem}"),
    "long": mark("long: {name}: {problem}"),
    "dtype": mark("dtype: {name}: {problem}"),
    "unexpected": mark("unexpected: {name}: {problem}"),
    "values": mark("values: {name}: {problem}"),
}


@dataclass(frozen=True)
class Finding:
    """One problem found in a FasterTransformer folder."""

    kind: str  # of KINDS
    name: str  # file name
    message: str

    def __str__(self) -> str:
        return tr(KINDS[self.kind], name=self.name, problem=self.message)


@dataclass(frozen=True)
class FileSize:
    """Expected and actual size [bytes] of a file that config.ini requires or that exists in the folder."""

    name: str
    expected: int | None  # None for config.ini and for files that config.ini does not require
    actual: int | None  # None if the file is missing
    shape: tuple[int, ...] = ()  # expected


@dataclass
class Inspection:
    """The configuration, the files and the problems found in a folder."""

    folder: Path
    config: FtConfig | None = None  # None if config.ini cannot be read, in which case `files` is empty
    files: list[FileSize] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the lines of a text report; files of the same sizes in several layers share a line."""
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

    def add(self, kind: str, name: str, message: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(kind, name, message))


def inspect(folder: Path, values: bool = False, inter_size: int | None = None) -> Inspection:
    """Compare DIR or DIR/N-gpu with its config.ini; `values`: also check every number for NaN and infinity.

    Raises CourseError if there is not exactly one FasterTransformer folder. Any other problem is a finding.
    """
    weights_folder, ranks = layout.find(folder)
    found = Inspection(weights_folder)
    try:
        config, warnings = ini.read(weights_folder, ranks, inter_size)
    except CourseError as error:
        found.add("config", CONFIG, str(error).removeprefix(f"{weights_folder / CONFIG}: "))
        return found
    found.config = config
    for warning in warnings:
        found.add("config", CONFIG, warning)
    if refused := layout.uneven(config):
        found.add("heads", CONFIG, refused)
        return found
    try:
        read_conversion(weights_folder.resolve().parent)
    except CourseError as error:
        found.add("config", CONVERSION, str(error))
    found.files = _files(weights_folder, config)
    _compare_sizes(found, config)
    if all(file.expected in (None, file.actual) for file in found.files):
        for name in wrong_sums(weights_folder, config):
            found.add(
                "values", name, tr("is not the sum of {biases}; the engine reads the sum", biases=" + ".join(SUMMED))
            )
    if values:
        _check_values(found, config)
    return found


def _files(folder: Path, config: FtConfig) -> list[FileSize]:
    """Return the required files and then the others."""
    actual = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    required = {
        name: FileSize(name, spec.size(config), actual.get(name), spec.part(config.ranks))
        for spec in layout.tensors(config)
        for name in spec.files(config.ranks)
    }
    return [*required.values(), *(FileSize(name, None, size) for name, size in actual.items() if name not in required)]


def _compare_sizes(found: Inspection, config: FtConfig) -> None:
    factor, other = (
        (2, tr("twice the bytes: fp32")) if BYTES[config.dtype] == 2 else (0.5, tr("half the bytes: fp16 or bf16"))
    )
    existing = [file for file in found.files if file.expected and file.actual is not None]
    mistyped = [file for file in existing if file.expected and file.actual == file.expected * factor]
    if mistyped and len(mistyped) == len(existing):
        message = tr("every file has {other}, but config.ini says {dtype}", other=other, dtype=config.dtype)
        found.add("dtype", CONFIG, message)
    for file in found.files:
        if file.expected is None:
            if file.name != CONFIG:
                found.add("unexpected", file.name, tr("config.ini does not require this file"))
        elif file.actual is None:
            found.add("missing", file.name, tr("expected {size:,} bytes", size=file.expected))
        elif file.actual != file.expected and len(mistyped) < len(existing):
            sizes = {"actual": file.actual, "expected": file.expected, "shape": list(file.shape), "dtype": config.dtype}
            message = tr("{actual:,} bytes, expected {expected:,} ({shape} of {dtype})", **sizes)
            if file in mistyped:
                found.add("dtype", file.name, f"{message}: {other}?")
            else:
                found.add("short" if file.actual < file.expected else "long", file.name, message)


def _check_values(found: Inspection, config: FtConfig) -> None:
    whole = [file for file in found.files if file.expected and file.actual == file.expected]
    with progress(sum(file.expected or 0 for file in whole), "B", "values") as bar:
        for file in whole:
            values = numbers(found.folder / file.name, config.dtype)
            bar.update(values.nbytes)
            if count := int((~torch.isfinite(values)).sum()):
                message = tr("{count:,} of {all:,} numbers are NaN or infinite", count=count, all=len(values))
                found.add("values", file.name, message)
