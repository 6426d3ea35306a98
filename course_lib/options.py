"""Command-line options that mean the same in every verb, and the help text that lists a verb's settings."""

from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from course_lib import config
from course_lib.parallel import default_workers

Settings = TypeVar("Settings")

Config = Annotated[
    Path | None,
    typer.Option("-c", "--config", metavar="FILE", help="YAML settings, or a profile's name; default: COURSE_PROFILE"),
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
    """The settings of a verb: those in -c FILE, else its section of a profile (the current one, or `-c xl`); then every --set."""
    if file is None or (file.stem in config.PROFILES and not file.exists()):
        return config.section(section, cls, overrides or (), file.stem if file else None)
    return config.load(cls, file, overrides or ())


def given(cls: type[Settings], file: Path | None, overrides: list[str] | None, **said: Any) -> Settings:
    """The settings of a verb without a section: those in -c FILE, else the defaults; then every --set; then the options that were given."""
    found = config.load(cls, file, overrides or ()) if file else config.build(cls, {}, overrides or ())
    named = {key: value for key, value in said.items() if value is not None}
    return config.build(cls, config.to_dict(found) | named) if named else found


def epilog(*classes: type[Any]) -> str:
    """The settings of a verb with type, default and unit, for the end of its --help."""
    lines = ["Settings (in the YAML of -c, or by --set):"]
    for cls in classes:
        lines += [f"{key} ({kind}, default {default}): {text}" for key, kind, default, text in config.describe(cls)]
    return "\n\n".join(lines)
