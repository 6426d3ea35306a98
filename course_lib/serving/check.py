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


@dataclass(frozen=True)
class Inspection:
    """The configuration, the files and the problems found in a folder."""

    folder: Path
    config: FtConfig | None  # None if config.ini cannot be read, in which case `files` is empty
    files: list[FileSize]
    findings: list[Finding]

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


def inspect(folder: Path, values: bool = False, inter_size: int | None = None) -> Inspection:
    """Compare DIR or DIR/N-gpu with its config.ini; `values`: also check every number for NaN and infinity.

    Raises CourseError if there is not exactly one FasterTransformer folder. Any other problem is a finding.
    """
    weights_folder, ranks = layout.find(folder)
    try:
        config, warnings = ini.read(weights_folder, ranks, inter_size)
    except CourseError as error:
        message = str(error).removeprefix(f"{weights_folder / CONFIG}: ")
        return Inspection(weights_folder, None, [], [Finding("config", CONFIG, message)])
    findings = [Finding("config", CONFIG, warning) for warning in warnings]
    if refused := layout.uneven(config):
        return Inspection(weights_folder, config, [], [*findings, Finding("heads", CONFIG, refused)])
    try:
        read_conversion(weights_folder.resolve().parent)
    except CourseError as error:
        findings.append(Finding("config", CONVERSION, str(error)))
    files = _files(weights_folder, config)
    findings += _compare(files, config)
    if all(file.expected in (None, file.actual) for file in files):
        message = tr("is not the sum of {biases}; the engine reads the sum", biases=" + ".join(SUMMED))
        findings += [Finding("values", name, message) for name in wrong_sums(weights_folder, config)]
    if values:
        findings += _values(weights_folder, files, config)
    return Inspection(weights_folder, config, files, findings)


def _files(folder: Path, config: FtConfig) -> list[FileSize]:
    files = []
    for spec in layout.tensors(config):
        for path in (folder / name for name in spec.files(config.ranks)):
            actual = path.stat().st_size if path.is_file() else None
            files.append(FileSize(path.name, spec.size(config), actual, spec.part(config.ranks)))
    required = {file.name for file in files}
    others = sorted(path for path in folder.iterdir() if path.name not in required)
    return files + [FileSize(path.name, None, path.stat().st_size) for path in others]


def _compare(files: list[FileSize], config: FtConfig) -> Iterator[Finding]:
    factor, other = 0.5, tr("half the bytes: fp16 or bf16")
    if BYTES[config.dtype] == 2:
        factor, other = 2, tr("twice the bytes: fp32")
    existing = [file for file in files if file.expected and file.actual is not None]
    mistyped = {file.name for file in existing if file.expected and 0 < file.actual == file.expected * factor}  # type: ignore[operator]
    all_mistyped = bool(existing) and len(mistyped) == len(existing)
    if all_mistyped:
        message = tr("every file has {other}, but config.ini says {dtype}", other=other, dtype=config.dtype)
        yield Finding("dtype", CONFIG, message)
    for file in files:
        if file.expected is None:
            if file.name != CONFIG:
                yield Finding("unexpected", file.name, tr("config.ini does not require this file"))
        elif file.actual is None:
            yield Finding("missing", file.name, tr("expected {size:,} bytes", size=file.expected))
        elif file.actual != file.expected and not all_mistyped:
            sizes = {"actual": file.actual, "expected": file.expected, "shape": list(file.shape), "dtype": config.dtype}
            message = tr("{actual:,} bytes, expected {expected:,} ({shape} of {dtype})", **sizes)
            if file.name in mistyped:
                yield Finding("dtype", file.name, f"{message}: {other}?")
            else:
                yield Finding("short" if file.actual < file.expected else "long", file.name, message)


def _values(folder: Path, files: list[FileSize], config: FtConfig) -> Iterator[Finding]:
    whole = {file.name: file.actual for file in files if file.actual is not None and file.actual == file.expected}
    with progress(sum(whole.values()), "B", "values") as bar:
        for name in whole:
            values = numbers(folder / name, config.dtype)
            bar.update(values.nbytes)
            if not all(map(torch.isfinite, torch.aminmax(values))):
                count, size = int((~torch.isfinite(values)).sum()), len(values)
                message = tr("{count:,} of {all:,} numbers are NaN or infinite", count=count, all=size)
                yield Finding("values", name, message)
