"""The prefixes of an export: their names, and whether they fit the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from course_lib.errors import CourseError, UsageError
from course_lib.prefix import files
from course_lib.prefix.base import digest
from course_lib.prefix.cache import Shape
from course_lib.serving.ini import NAME, NAME_BYTES
from course_lib.serving.layout import FtConfig


@dataclass(frozen=True)
class NamedPrefix:
    """A task's name and its prefix."""

    name: str
    values: Tensor | None  # [P, L·2·H]; None for the task of rows without a prefix
    base: str = ""  # digest of the model it was trained on, if that is known
    shape: Shape | None = None  # of that model, if it is known


def named(argument: str) -> NamedPrefix:
    """What `--prefix [NAME=]FILE` says; `NAME=` is the task of rows without a prefix. Without NAME the file's task, or its stem."""
    name, file = split(argument)
    if file is None:
        return NamedPrefix(name, None)
    prefix = files.read(file)
    return NamedPrefix(name or prefix.task or file.stem, prefix.values, prefix.base, prefix.shape)


def split(argument: str) -> tuple[str, Path | None]:
    """NAME and FILE of `--prefix [NAME=]FILE`; NAME is empty if there is none, FILE is None in `NAME=`."""
    name, given, file = argument.partition("=")
    if not given or Path(argument).exists():
        return "", Path(argument)
    return name, Path(file) if file else None


def fitting(prefixes: Sequence[NamedPrefix], config: FtConfig) -> dict[str, Tensor]:
    """The values by name, each [P, L·2·H]. Raises UsageError for a name, CourseError for values that do not fit."""
    shape = Shape(config.layers, config.heads, config.head_size)
    width = shape.width
    found: dict[str, Tensor] = {}
    for prefix in prefixes:
        name = prefix.name
        if not NAME.fullmatch(name) or len(name.encode()) > NAME_BYTES:
            raise UsageError(
                f"--prefix {name!r}: cannot be part of a file's name; allowed: letters, digits and . _ + -, up to {NAME_BYTES} bytes"
            )
        if same := [other for other in found if other.casefold() == name.casefold()]:
            raise UsageError(f"--prefix {name}: named like {same[0]}, their files would be one; give another NAME=")
        values = torch.empty(0, width) if prefix.values is None else prefix.values
        if (
            values.numel() % width
            or (values.dim() == 2 and values.shape[1] != width)
            or prefix.shape not in (None, shape)
        ):
            theirs = f"{list(values.shape)} numbers" + (f" for {prefix.shape}" if prefix.shape else "")
            raise CourseError(f"prefix {name}: {theirs}; this model takes {width:,} per position, for {shape}")
        found[name] = values.reshape(-1, width)
        if config.positions and len(found[name]) >= config.positions:
            raise CourseError(
                f"prefix {name}: {len(found[name])} positions leave none of the model's {config.positions}"
            )
    return found


def same_base(prefixes: Sequence[NamedPrefix], model: Path) -> str | None:
    """The digest of the model, if a prefix names its base. Raises CourseError for a prefix that was trained on other weights."""
    if not any(prefix.base for prefix in prefixes):
        return None
    own = digest(model)
    for prefix in prefixes:
        if prefix.base and prefix.base != own:
            raise CourseError(
                f"prefix {prefix.name}: trained on the weights {prefix.base[:12]}, the model's are {own[:12]}; a prefix works with its own base only"
            )
    return own
