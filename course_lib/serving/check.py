"""Whether a FasterTransformer folder is what its config.ini says. The engine only warns, and runs with whatever memory held before.

Sizes are all that can be compared: the files have no header. `values` also reads the numbers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.files import human_size
from course_lib.progress import progress
from course_lib.serving import ini, layout
from course_lib.serving.layout import BYTES, CONFIG, CONVERSION, SUMMED, FtConfig, TensorSpec
from course_lib.serving.reader import read_conversion
from course_lib.serving.weight_map import TORCH

LAYER = re.compile(r"model\.layers\.\d+\.")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    kind: str  # config, missing, short, long, dtype, unexpected, heads, values
    name: str  # of the file
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}: {self.message}"


@dataclass(frozen=True)
class FileSize:
    """A file that the config asks for, or that is there [bytes]; config.ini is one of them."""

    name: str
    expected: int | None  # None for config.ini, and for a file that it does not ask for
    actual: int | None


@dataclass(frozen=True)
class Inspection:
    """What a folder says, what it holds, and what is wrong with it."""

    folder: Path
    config: FtConfig | None  # None if it cannot be read: then nothing else is known
    files: list[FileSize]
    findings: list[Finding]

    def lines(self) -> Iterator[str]:
        """For people: files of all layers that agree share a line."""
        if self.config:
            yield from ini.text(self.config).strip().splitlines()
            yield f"{'expected':>15} {'actual':>15}  [bytes]"
        rows: dict[tuple[str, int | None, int | None], int] = {}
        for file in self.files:
            key = (LAYER.sub("model.layers.*.", file.name), file.expected, file.actual)
            rows[key] = rows.get(key, 0) + 1
        for (name, expected, actual), count in rows.items():
            sizes = (" " * 14 + "-" if size is None else f"{size:15,}" for size in (expected, actual))
            yield f"{' '.join(sizes)}  {name}{f' × {count}' if count > 1 else ''}"
        if there := [file.actual for file in self.files if file.actual is not None]:
            yield f"{len(there)} files, {human_size(sum(there))} in {self.folder}"
        yield from map(str, self.findings)


def inspect(folder: Path, values: bool = False) -> Inspection:
    """Compares a folder (DIR or DIR/N-gpu) with its config. `values`: also looks for NaN and infinity in every file.

    Raises CourseError only if there is no such folder.
    """
    place, ranks = layout.find(folder)
    try:
        config, doubts = ini.read(place, ranks)
    except CourseError as error:
        return Inspection(place, None, [], [Finding("config", CONFIG, str(error).removeprefix(f"{place / CONFIG}: "))])
    findings = [Finding("config", CONFIG, doubt) for doubt in doubts]
    if refused := layout.uneven(config):
        return Inspection(place, config, [], [*findings, Finding("heads", CONFIG, refused)])
    try:
        read_conversion(place.resolve().parent / CONVERSION)
    except CourseError as error:
        findings.append(Finding("config", CONVERSION, str(error)))
    specs = {name: spec for spec in layout.tensors(config) for name in spec.files(ranks)}
    files = list(_sizes(place, specs, config))
    findings += _compare(files, specs, config)
    if values:
        findings += _values(place, files, config)
    return Inspection(place, config, files, findings)


def _sizes(place: Path, specs: dict[str, TensorSpec], config: FtConfig) -> Iterator[FileSize]:
    for name, spec in specs.items():
        path = place / name
        yield FileSize(name, spec.size(config), path.stat().st_size if path.is_file() else None)
    for path in sorted(place.iterdir()):
        if path.name not in specs:
            yield FileSize(path.name, None, path.stat().st_size)


def _compare(files: list[FileSize], specs: dict[str, TensorSpec], config: FtConfig) -> Iterator[Finding]:
    twice = BYTES[config.dtype] == 2
    other = "twice the bytes: fp32" if twice else "half the bytes: fp16 or bf16"

    def mistyped(file: FileSize) -> bool:
        sizes = (file.actual or 0, file.expected or 0)
        return min(sizes) > 0 and sizes[0] * (1 if twice else 2) == sizes[1] * (2 if twice else 1)

    there = [file for file in files if file.expected is not None and file.actual is not None]
    all_mistyped = bool(there) and all(map(mistyped, there))
    if all_mistyped:
        yield Finding("dtype", CONFIG, f"every file has {other}, but config.ini says {config.dtype}")
    for file in files:
        if file.name == CONFIG:
            continue
        if file.expected is None:
            yield Finding("unexpected", file.name, "config.ini asks for no such file")
        elif file.actual is None:
            yield Finding("missing", file.name, f"expected {file.expected:,} bytes")
        elif file.actual != file.expected and not all_mistyped:
            kind = "dtype" if mistyped(file) else "short" if file.actual < file.expected else "long"
            shape = list(specs[file.name].part(config.ranks))
            said = f"{file.actual:,} bytes, expected {file.expected:,} ({shape} of {config.dtype})"
            yield Finding(kind, file.name, f"{said}: {other}?" if kind == "dtype" else said)


def _values(place: Path, files: list[FileSize], config: FtConfig) -> Iterator[Finding]:
    whole = {
        file.name: file.actual or 0 for file in files if file.expected is not None and file.actual == file.expected
    }
    with progress(sum(whole.values()), "B", "values") as bar:
        for name in whole:
            numbers = _read(place / name, config)
            bar.update(numbers.nbytes)
            if not all(map(torch.isfinite, torch.aminmax(numbers))):
                count = int((~torch.isfinite(numbers)).sum())
                yield Finding("values", name, f"{count:,} of {len(numbers):,} numbers are NaN or infinite")
    for layer in range(config.layers if config.parallel_residual else 0):
        names = [f"model.layers.{layer}.{name}.bin" for name in ("mlp.attention.bias.sum", *SUMMED)]
        if whole.keys() >= set(names):
            total, attention, mlp = (_read(place / name, config) for name in names)
            if not torch.equal(total, attention + mlp):
                yield Finding("values", names[0], f"is not the sum of {' and '.join(SUMMED)}; the engine reads the sum")


def _read(path: Path, config: FtConfig) -> Tensor:
    return torch.from_numpy(np.fromfile(path, np.uint8)).view(TORCH[config.dtype])
