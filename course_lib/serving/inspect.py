"""Whether a FasterTransformer folder is what its config.ini says. The engine only warns, and runs with whatever memory held before.

Sizes are all that can be compared: the files have no header. `values` also reads the numbers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from course_lib.errors import CourseError
from course_lib.files import human_size
from course_lib.progress import progress
from course_lib.serving import ini, layout
from course_lib.serving.layout import BYTES, CONFIG, CONVERSION, FtConfig, TensorSpec
from course_lib.serving.reader import TORCH, read_conversion

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
    """A file that the config asks for, or that is there [bytes]."""

    name: str
    expected: int | None
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
        yield f"{len(self.files)} files, {human_size(sum(file.actual or 0 for file in self.files))} in {self.folder}"
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
        findings += _values(place, files, specs, config)
    return Inspection(place, config, files, findings)


def _sizes(place: Path, specs: dict[str, TensorSpec], config: FtConfig) -> Iterator[FileSize]:
    for name, spec in specs.items():
        path = place / name
        yield FileSize(name, spec.size(config), path.stat().st_size if path.is_file() else None)
    for path in sorted(place.iterdir()):
        if path.name not in specs and path.name != CONFIG:
            yield FileSize(path.name, None, path.stat().st_size)


def _compare(files: list[FileSize], specs: dict[str, TensorSpec], config: FtConfig) -> Iterator[Finding]:
    known = [file for file in files if file.expected is not None and file.actual is not None]
    for factor, other in ((2, "fp32"), (0.5, "fp16 or bf16")):
        if known and all(file.actual == factor * (file.expected or 0) for file in known):
            said = f"every file has {'twice' if factor == 2 else 'half'} the bytes: {other}, but config.ini says {config.dtype}"
            yield Finding("dtype", CONFIG, said)
            known = []
    for file in files:
        if file.expected is None:
            yield Finding("unexpected", file.name, "config.ini asks for no such file")
        elif file.actual is None:
            yield Finding("missing", file.name, f"expected {file.expected:,} bytes")
        elif file.actual != file.expected and known:
            yield _wrong_size(file.name, file.expected, file.actual, specs[file.name], config)


def _wrong_size(name: str, expected: int, actual: int, spec: TensorSpec, config: FtConfig) -> Finding:
    kind = "short" if actual < expected else "long"
    said = f"{actual:,} bytes, expected {expected:,} ({list(spec.part(config.ranks))} of {config.dtype})"
    if actual * 2 == expected or actual == expected * 2:
        kind = "dtype"
        said += (
            f": {'half' if actual < expected else 'twice'}, as if in {'16' if BYTES[config.dtype] == 4 else '32'} bits"
        )
    return Finding(kind, name, said)


def _values(place: Path, files: list[FileSize], specs: dict[str, TensorSpec], config: FtConfig) -> Iterator[Finding]:
    whole = [file for file in files if file.expected is not None and file.actual == file.expected]
    dtype = TORCH[config.dtype]
    with progress(sum(file.actual or 0 for file in whole), "B", "values") as bar:
        for file in whole:
            numbers = torch.from_numpy(np.fromfile(place / file.name, np.uint8)).view(dtype)
            bar.update(numbers.nbytes)
            low, high = (float(end) for end in torch.aminmax(numbers))
            if not np.isfinite(low + high):
                count = int((~torch.isfinite(numbers)).sum())
                yield Finding("values", file.name, f"{count:,} of {len(numbers):,} numbers are NaN or infinite")
