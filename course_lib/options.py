"""Command-line options that mean the same in every verb, the settings they choose, and the help text that lists those."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from course_lib import config
from course_lib.errors import UsageError
from course_lib.parallel import default_workers

Settings = TypeVar("Settings")

Config = Annotated[
    Path | None,
    typer.Option(
        "-c", "--config", metavar="FILE", help="YAML settings, or a profile's name; default: what this help lists"
    ),
]
RunConfig = Annotated[
    Path | None,
    typer.Option(
        "-c", "--config", metavar="FILE", help="YAML settings, or a profile's name for its run; default: COURSE_PROFILE"
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
        help="where the product goes; a symbolic link stays, a device or pipe is written through",
    ),
]
WORKERS = default_workers()


def group(help: str) -> typer.Typer:
    """A command group with the course's plain style."""
    return typer.Typer(
        help=help, no_args_is_help=True, rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False
    )


def settings(cls: type[Settings], section: str, file: Path | None, overrides: list[str] | None) -> Settings:
    """The settings of a verb: those in -c FILE or of its section in the profile that -c names, else the defaults; then every --set.

    A profile is for the products of the course: without -c none applies to a user's own files. What differs from the defaults is said
    in one line on standard error.
    """
    if named := config.named_profile(file):
        chosen = config.section(section, cls, overrides or (), named)
    else:
        chosen = given(cls, file, overrides)
    if changed := config.changed(chosen):
        values = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in changed.items())
        print(f"settings: {values}; all others are the defaults", file=sys.stderr)
    return chosen


def given(cls: type[Settings], file: Path | None, overrides: list[str] | None, **said: Any) -> Settings:
    """The settings of a verb without a section: those in -c FILE, else the defaults; then every --set; then the options that were given."""
    if config.named_profile(file):
        raise UsageError(f"-c {file}: a profile has no settings of this verb; allowed: a YAML file")
    found = config.load(cls, file, overrides or ()) if file else config.build(cls, {}, overrides or ())
    named = {key: value for key, value in said.items() if value is not None}
    return config.build(cls, config.to_dict(found) | named) if named else found


def run_file(file: Path | None, section: str, recipe: type[Settings], run: Callable[[Settings], str]) -> Path:
    """The file of a run's settings: -c FILE, else `run` of the recipe of a profile (the one that -c names, or the current one), which is
    then said in one line on standard error.
    """
    named = config.named_profile(file)
    if file is not None and named is None:
        return file
    found = Path(run(config.section(section, recipe, of=named)))
    print(f"settings: {found}, the run of profile {named or config.profile()}", file=sys.stderr)
    return found


def epilog(*classes: type[Any]) -> str:
    """The settings of a verb with type, default and unit, for the end of its --help."""
    lines = ["Settings (in the YAML of -c, or by --set):"]
    for cls in classes:
        lines += [f"{key} ({kind}, default {default}): {text}" for key, kind, default, text in config.describe(cls)]
    return "\n\n".join(lines)
