"""Checks that compare a FasterTransformer folder with its config.ini.

If a file is missing or has the wrong size, the engine only prints a warning and then runs with uninitialized memory.
The files have no header, so only their sizes can be compared with config.ini.
"""

from dataclasses import dataclass, field
from pathlib import Path

import torch

from course_lib.checkpoints.number_formats import BYTES
from course_lib.errors import CourseError
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress
from course_lib.serving import ini, layout
from course_lib.serving.layout import CONFIG, SUMMED, FtConfig, TensorSpec
from course_lib.serving.reader import numbers, wrong_sums


@dataclass(frozen=True)
class Finding:
    """One problem found in a FasterTransformer folder."""

    kind: str  # config, missing, short, long, dtype, unexpected or values
    name: str  # file name
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}: {self.message}"


@dataclass
class Inspection:
    """The configuration of a folder and the problems found in it."""

    folder: Path
    config: FtConfig | None = None  # None if config.ini cannot be read
    files: int = 0
    findings: list[Finding] = field(default_factory=list)

    def summary(self) -> str:
        """Return one line for each problem, or one that says that there is none."""
        if self.findings:
            return "\n".join(map(str, self.findings))
        return tr("{folder}: no problems in {files} files", folder=self.folder, files=self.files)

    def add(self, kind: str, name: str, message: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(kind, name, message))


def inspect(folder: Path, values: bool = False) -> Inspection:
    """Compare DIR or DIR/N-gpu with its config.ini; `values`: also check every number for NaN and infinity.

    Raises CourseError if there is not exactly one FasterTransformer folder. Any other problem is a finding.
    """
    weights_folder, ranks = layout.find(folder)
    found = Inspection(weights_folder)
    try:
        config, warnings = ini.read(weights_folder, ranks)
    except CourseError as error:
        found.add("config", CONFIG, str(error).removeprefix(f"{weights_folder / CONFIG}: "))
        return found
    found.config = config
    for warning in warnings:
        found.add("config", CONFIG, warning)
    if refused := layout.uneven(config):
        found.add("config", CONFIG, refused)
        return found
    actual = {path.name: path.stat().st_size for path in sorted(weights_folder.iterdir())}
    found.files = len(actual)
    required = {name: spec for spec in layout.tensors(config) for name in spec.files(ranks)}
    for name, spec in required.items():
        _compare_size(found, config, name, spec, actual.get(name))
    for name in sorted(actual.keys() - required.keys() - {CONFIG}):
        found.add("unexpected", name, tr("config.ini does not require this file"))
    whole = [name for name, spec in required.items() if actual.get(name) == spec.size(config)]
    if len(whole) == len(required):
        for name in wrong_sums(weights_folder, config):
            message = tr("is not the sum of {biases}; the engine reads the sum", biases=" + ".join(SUMMED))
            found.add("values", name, message)
    if values:
        _check_values(found, config, {name: actual[name] for name in whole})
    return found


def _compare_size(found: Inspection, config: FtConfig, name: str, spec: TensorSpec, actual: int | None) -> None:
    """Add a finding if a file is missing, or has another size than config.ini requires."""
    expected = spec.size(config)
    if actual is None:
        found.add("missing", name, tr("expected {size:,} bytes", size=expected))
    elif actual != expected:
        sizes = {"actual": actual, "expected": expected, "shape": list(spec.part(config.ranks)), "dtype": config.dtype}
        message = tr("{actual:,} bytes, expected {expected:,} ({shape} of {dtype})", **sizes)
        if BYTES[config.dtype] == 2 and actual == 2 * expected:
            guess = tr("twice the bytes: fp32")
            found.add("dtype", name, f"{message}: {guess}?")
        elif BYTES[config.dtype] == 4 and 2 * actual == expected:
            guess = tr("half the bytes: fp16 or bf16")
            found.add("dtype", name, f"{message}: {guess}?")
        else:
            found.add("short" if actual < expected else "long", name, message)


def _check_values(found: Inspection, config: FtConfig, sizes: dict[str, int]) -> None:
    """Add a finding for each file with NaN or infinity; `sizes` are the files' bytes."""
    with progress(sum(sizes.values()), "B", "values") as bar:
        for name, size in sizes.items():
            values = numbers(found.folder / name, config.dtype)
            bar.update(size)
            if count := int((~torch.isfinite(values)).sum()):
                message = tr("{count:,} of {all:,} numbers are NaN or infinite", count=count, all=len(values))
                found.add("values", name, message)
