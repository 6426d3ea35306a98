"""The prefixes for an export: their names, and whether they match the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from course_lib.errors import UsageError
from course_lib.generation.prefix_cache import Shape
from course_lib.models.frozen_base import digest
from course_lib.prefix import files
from course_lib.serving.ini import NAME
from course_lib.serving.layout import FtConfig


@dataclass(frozen=True)
class NamedPrefix:
    """A task name and its prefix."""

    name: str
    values: Tensor | None  # [P, L·2·H]; None for a task without a prefix
    base: str = ""  # digest of the model that the prefix was trained on; empty if unknown
    shape: Shape | None = None  # of that model; None if unknown


def named(argument: str) -> NamedPrefix:
    """Return the prefix for a `--prefix [NAME=]FILE` argument.

    `NAME=` without FILE is a task without a prefix. If NAME is missing, the name is the task stored in the file, or
    else the file name without its suffix.
    """
    name, equals, file = argument.partition("=")
    if not equals or Path(argument).exists():
        name, file = "", argument
    if not file:
        return NamedPrefix(name, None)
    prefix = files.read(Path(file))
    return NamedPrefix(name or prefix.task or Path(file).stem, prefix.values, prefix.base, prefix.shape)


def fitting(prefixes: Sequence[NamedPrefix], config: FtConfig, model: Path) -> tuple[dict[str, Tensor], str | None]:
    """Return the values of each prefix [P, layers · 2 · hidden size] by name, and the digest of the model's weights.

    The digest is None if no prefix records its base model.
    """
    shape = Shape(config.layers, config.heads, config.head_size)
    own = digest(model) if any(prefix.base for prefix in prefixes) else None
    values_by_name: dict[str, Tensor] = {}
    for prefix in prefixes:
        name = prefix.name
        if not NAME.fullmatch(name):
            raise UsageError(
                f"--prefix {name!r}: cannot be part of a file's name; allowed: letters, digits and . _ + -"
            )
        if name in values_by_name:
            raise UsageError(f"--prefix {name}: occurs twice, so both would have the same file; give another NAME=")
        values = torch.empty(0, shape.width) if prefix.values is None else prefix.values
        files.Prefix(values, name, prefix.base, prefix.shape).require(shape, own or "")
        values_by_name[name] = values
    return values_by_name, own
