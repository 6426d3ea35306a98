"""Settings from the command line: `settings: Annotated[SegmentConfig, FromOptions(SEGMENT_SECTION)]`.

The command then has -c, --set and an option for each single value of the class, and gets the settings that they choose.
"""

import dataclasses
import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import typer

from course_lib.errors import UsageError, notify
from course_lib.language.words import tr
from course_lib.settings import config, profiles

Settings = TypeVar("Settings")


@dataclasses.dataclass(frozen=True)
class FromOptions:
    """Note of a parameter whose value is a settings class."""

    # The section of a profile with these settings, which `-c PROFILE` selects; None: no profile has them.
    section: config.Section[Any] | None = None
    # Fields that get no option, because an option of the command has their name.
    without: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Lists:
    """Note of the parameter `config` of a command that reads a settings file itself: --help lists this class."""

    cls: type


class SettingsParameter(NamedTuple):
    """A parameter of a command with settings: its name, their class, and its note."""

    name: str
    cls: type
    note: FromOptions


def settings_parameter(function: Callable[..., Any]) -> SettingsParameter | None:
    """Return the parameter of a command that has settings from options, or None if it has none."""
    for parameter in inspect.signature(function).parameters.values():
        for note in notes(parameter):
            if isinstance(note, FromOptions):
                return SettingsParameter(parameter.name, get_args(parameter.annotation)[0], note)
    return None


def settings_class(function: Callable[..., Any]) -> type | None:
    """Return the class of the settings that --help of a command lists, or None if it has no settings."""
    if found := settings_parameter(function):
        return found.cls
    for parameter in inspect.signature(function).parameters.values():
        for note in notes(parameter):
            if isinstance(note, Lists):
                return note.cls
    return None


def notes(parameter: inspect.Parameter) -> tuple[Any, ...]:
    """Return what the annotation of a parameter has beside its type."""
    return get_args(parameter.annotation)[1:] if get_origin(parameter.annotation) is Annotated else ()


def options(chosen: SettingsParameter) -> dict[str, inspect.Parameter]:
    """Return an option for each single value of a settings class, by the name of its field."""
    found = {}
    for field in dataclasses.fields(chosen.cls):
        option = _option(field)
        if option and field.name not in chosen.note.without:
            found[field.name] = option
    return found


def _option(field: "dataclasses.Field[Any]") -> inspect.Parameter | None:
    """Return the option for a setting, whose class checks the value; None if it is no single value."""
    info: Any = field.default
    type_ = field.type
    members = [each for each in get_args(type_) if each is not NoneType]
    if len(members) == 1 and get_origin(members[0]) is Literal:
        # A choice that may be unset.
        type_, members = members[0], list(get_args(members[0]))
    is_choice = get_origin(type_) is Literal
    kind: Any = str if is_choice or str in members else next(iter(members), type_)
    if kind not in (bool, int, float, str) or info.default_factory:
        return None
    name = field.name.replace("_", "-")
    flags = f"--{name}/--no-{name}" if info.default is True else f"--{name}"
    metavar = "|".join(map(str, members)) if is_choice else None
    default = "unset" if info.default is None else info.default
    help = info.description if kind is bool else f"{info.description} [default: {default}]"
    annotation = Annotated[kind | None, typer.Option(flags, metavar=metavar, help=help)]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)


def settings(
    cls: type[Settings],
    section: config.Section[Settings] | None,
    file: Path | None,
    overrides: Sequence[str] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Settings:
    """Return the settings of a command, and print those that differ from the defaults if profiles have them.

    `file` is the YAML file or profile that -c names. Without it, the defaults hold whatever the current profile, which
    is for the course products. --set (`overrides`) is applied to them, then options (`changes`).
    """
    if profile := profiles.profile_of_option(file):
        if section is None:
            raise UsageError(f"-c {file}: a profile has no settings of this command; allowed: a YAML file")
        chosen = section.read(overrides or (), of=profile)
    elif file:
        chosen = config.load(cls, file, overrides or ())
    else:
        chosen = config.build(cls, {}, overrides or ())
    if given := {key: value for key, value in (changes or {}).items() if value is not None}:
        chosen = config.build(cls, config.to_dict(chosen) | given)
    if section and (changed := config.changed(chosen)):
        values = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in changed.items())
        notify(tr("settings: {values}; all others are the defaults", values=values))
    return chosen


def epilog(cls: type, options: Collection[str] = ()) -> str:
    """Return help text that lists the settings that are not options themselves, with type, default and unit."""
    rows = [row for row in config.describe(cls) if row.key not in options]
    lines = [f"{row.key} ({row.kind}, default {row.default}): {row.help}" for row in rows]
    return "\n\n".join(["Settings (in the YAML of -c, or by --set):", *lines]) if rows else ""
