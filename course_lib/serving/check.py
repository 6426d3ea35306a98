"""Checks that compare a FasterTransformer folder with its config.ini.

If a file is missing or has the wrong size, the engine only prints a warning and then runs with uninitialized memory.
The files have no header, so only their sizes can be compared with config.ini.
"""

from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Inspection:
    """The configuration of a folder and the problems found in it."""

    folder: Path
    findings: list[Finding]
    config: FtConfig | None = None  # None if config.ini cannot be read
    files: int = 0

    def summary(self) -> str:
        """Return one line for each problem, or one that says that there is none."""
        if self.findings:
            return "\n".join(map(str, self.findings))
        return tr("{folder}: no problems in {files} files", folder=self.folder, files=self.files)


def inspect(folder: Path, values: bool = False) -> Inspection:
    """Compare DIR or DIR/N-gpu with its config.ini; `values`: also check every number for NaN and infinity."""
    weights_folder, ranks = layout.find(folder)
    try:
        config, warnings = ini.read(weights_folder, ranks)
    except CourseError as error:
        message = str(error).removeprefix(f"{weights_folder / CONFIG}: ")
        return Inspection(weights_folder, [Finding("config", CONFIG, message)])
    refused = layout.uneven(config)
    findings = [Finding("config", CONFIG, message) for message in [*warnings, *filter(None, [refused])]]
    if refused:
        return Inspection(weights_folder, findings, config)
    actual = {path.name: path.stat().st_size for path in sorted(weights_folder.iterdir())}
    required = {name: spec for spec in layout.tensors(config) for name in spec.files(ranks)}
    wrong = {name: spec for name, spec in required.items() if actual.get(name) != spec.size(config)}
    findings += [_wrong_size(config, name, spec, actual.get(name)) for name, spec in wrong.items()]
    for name in sorted(actual.keys() - required.keys() - {CONFIG}):
        findings.append(Finding("unexpected", name, tr("config.ini does not require this file")))
    if not wrong:
        message = tr("is not the sum of {biases}; the engine reads the sum", biases=" + ".join(SUMMED))
        findings += [Finding("values", name, message) for name in wrong_sums(weights_folder, config)]
    if values:
        findings += _wrong_values([weights_folder / name for name in required if name not in wrong], config)
    return Inspection(weights_folder, findings, config, len(actual))


def _wrong_size(config: FtConfig, name: str, spec: TensorSpec, actual: int | None) -> Finding:
    """Return the finding for a file that is missing, or has another size than config.ini requires."""
    expected = spec.size(config)
    if actual is None:
        return Finding("missing", name, tr("expected {size:,} bytes", size=expected))
    sizes = {"actual": actual, "expected": expected, "shape": list(spec.part(config.ranks)), "dtype": config.dtype}
    message = tr("{actual:,} bytes, expected {expected:,} ({shape} of {dtype})", **sizes)
    if BYTES[config.dtype] == 2 and actual == 2 * expected:
        return Finding("dtype", name, message + ": " + tr("twice the bytes: fp32") + "?")
    if BYTES[config.dtype] == 4 and 2 * actual == expected:
        return Finding("dtype", name, message + ": " + tr("half the bytes: fp16 or bf16") + "?")
    return Finding("short" if actual < expected else "long", name, message)


def _wrong_values(paths: list[Path], config: FtConfig) -> Iterator[Finding]:
    """Yield a finding for each file with NaN or infinity."""
    with progress(sum(path.stat().st_size for path in paths), "B", "values") as bar:
        for path in paths:
            values = numbers(path, config.dtype)
            bar.update(values.nbytes)
            if count := int((~torch.isfinite(values)).sum()):
                message = tr("{count:,} of {all:,} numbers are NaN or infinite", count=count, all=len(values))
                yield Finding("values", path.name, message)
