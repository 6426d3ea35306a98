"""The prefixes for an export: their names, and whether they match the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from course_lib.errors import CourseError, UsageError
from course_lib.generation.prefix_cache import Shape
from course_lib.models.frozen_base import digest
from course_lib.prefix import files
from course_lib.serving.ini import NAME, NAME_BYTES
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
    name, file = split(argument)
    if file is None:
        return NamedPrefix(name, None)
    prefix = files.read(file)
    return NamedPrefix(name or prefix.task or file.stem, prefix.values, prefix.base, prefix.shape)


def split(argument: str) -> tuple[str, Path | None]:
    """Return NAME and FILE from `--prefix [NAME=]FILE`; a missing NAME is empty, and a missing FILE is None."""
    name, equals, file = argument.partition("=")
    if not equals or Path(argument).exists():
        return "", Path(argument)
    return name, Path(file) if file else None


def fitting(prefixes: Sequence[NamedPrefix], config: FtConfig) -> dict[str, Tensor]:
    """Return the values of each prefix by name, each [prefix length, layers · 2 · hidden size].

    Raises UsageError if a name is not allowed or is used twice, and CourseError if values do not match the model.
    """
    shape = Shape(config.layers, config.heads, config.head_size)
    values_by_name: dict[str, Tensor] = {}
    for prefix in prefixes:
        name = prefix.name
        if not NAME.fullmatch(name) or len(name.encode()) > NAME_BYTES:
            raise UsageError(
                f"--prefix {name!r}: cannot be part of a file's name; "
                f"allowed: letters, digits and . _ + -, up to {NAME_BYTES} bytes"
            )
        if same := [other for other in values_by_name if other.casefold() == name.casefold()]:
            raise UsageError(
                f"--prefix {name}: named like {same[0]}, so both would have the same file; give another NAME="
            )
        values = torch.empty(0, shape.width) if prefix.values is None else prefix.values
        fits = values.numel() % shape.width == 0 and (values.dim() != 2 or values.shape[1] == shape.width)
        if not fits or prefix.shape not in (None, shape):
            theirs = f"{list(values.shape)} numbers" + (f" for {prefix.shape}" if prefix.shape else "")
            raise CourseError(f"prefix {name}: {theirs}; this model takes {shape.width:,} per position, for {shape}")
        values_by_name[name] = values.reshape(-1, shape.width)
        length = len(values_by_name[name])
        if config.positions and length >= config.positions:
            raise CourseError(f"prefix {name}: {length} positions leave none of the model's {config.positions}")
    return values_by_name


def same_base(prefixes: Sequence[NamedPrefix], model: Path) -> str | None:
    """Return the digest of the model's weights if a prefix records its base model, else None.

    Raises CourseError if a prefix was trained on other weights.
    """
    if not any(prefix.base for prefix in prefixes):
        return None
    own = digest(model)
    for prefix in prefixes:
        if prefix.base and prefix.base != own:
            raise CourseError(
                f"prefix {prefix.name}: trained on the weights {prefix.base[:12]}, the model's are {own[:12]}; "
                "a prefix works only with the base model it was trained on"
            )
    return own
