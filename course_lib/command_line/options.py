"""Command-line options shared by all commands, the settings that result from them, and the help text for settings."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.parallel import default_workers
from course_lib.settings import config, profiles

Settings = TypeVar("Settings")

Config = Annotated[
    Path | None,
    typer.Option(
        "-c", "--config", metavar="FILE", help="YAML settings, or a profile's name; default: the values in this help"
    ),
]
RunConfig = Annotated[
    Path | None,
    typer.Option(
        "-c",
        "--config",
        metavar="FILE",
        help="YAML settings, or a profile's name for its run; default: the run of COURSE_PROFILE",
    ),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override one setting (dotted key); repeatable")
]
Workers = Annotated[int, typer.Option("--workers", min=1, help="processes; default: the cores of this machine")]
Output = Annotated[
    Path,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="path of the product; the target of a symbolic link is replaced, a device or pipe is written directly",
    ),
]
WORKERS = default_workers()


def settings(cls: type[Settings], section: str, file: Path | None, overrides: list[str] | None) -> Settings:
    """Return the settings for a command that has a section in the profiles.

    The values come from the YAML file or profile that -c names, or from the defaults. Each --set is then applied. The
    current profile has no effect without -c, because it is for the course products, not for a user's own files.
    Settings that differ from the defaults are printed on one line to standard error.
    """
    if named := profiles.named(file):
        chosen = config.section(section, cls, overrides or (), named)
    else:
        chosen = given(cls, file, overrides)
    if changed := config.changed(chosen):
        values = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in changed.items())
        print(tr("settings: {values}; all others are the defaults", values=values), file=sys.stderr)
    return chosen


def given(cls: type[Settings], file: Path | None, overrides: list[str] | None, **named: Any) -> Settings:
    """Return the settings for a command that has no section in the profiles.

    The values come from the YAML file that -c names, or from the defaults. Each --set is then applied, followed by each
    keyword argument that is not None. Raises UsageError if -c names a profile.
    """
    if profiles.named(file):
        raise UsageError(f"-c {file}: a profile has no settings of this verb; allowed: a YAML file")
    loaded = config.load(cls, file, overrides or ()) if file else config.build(cls, {}, overrides or ())
    changes = {key: value for key, value in named.items() if value is not None}
    return config.build(cls, config.to_dict(loaded) | changes) if changes else loaded


def run_file(file: Path | None, of_profile: Callable[[str | None], str]) -> Path:
    """Return the path to a run's settings file: the one that -c names, or the one for a profile.

    A path that comes from a profile is printed on one line to standard error.

    Args:
        file: the value of -c: a settings file, a profile name, or None for the current profile.
        of_profile: returns the settings file for the run of a profile; None means the current profile.
    """
    named = profiles.named(file)
    if file is not None and named is None:
        return file
    path = Path(of_profile(named))
    profile = named or profiles.name()
    print(tr("settings: {path}, the run of profile {profile}", path=path, profile=profile), file=sys.stderr)
    return path


def epilog(*classes: type[Any]) -> str:
    """Return help text for the end of --help that lists each setting with its type, default and unit."""
    lines = ["Settings (in the YAML of -c, or by --set):"]
    for cls in classes:
        lines += [f"{key} ({kind}, default {default}): {text}" for key, kind, default, text in config.describe(cls)]
    return "\n\n".join(lines)
