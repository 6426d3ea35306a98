"""What an option or argument means in every command that has it: its name, help, limits and how its text is read.

The function of a command annotates its parameters with these, or with typer.Option and typer.Argument for what it
alone has. Notes beside them, such as PRODUCT, tell command.py what to do with the value before and after the command
runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Annotated

import typer

from course_lib import files
from course_lib.parallel import default_workers


class Note(Enum):
    """What a value is for, beside its type and help."""

    # The path of -o. No command writes over what it reads: no input may be this path, hold it or be inside it.
    PRODUCT = auto()
    # The file of -c. It may be in the folder that is replaced, but not be the product itself.
    CONFIG = auto()
    # A text that may name a file that the command reads, also as NAME=FILE. All paths are read anyway.
    NAMES_FILE = auto()
    # Folders of models or tokenizers: aozora stands for the model that comes with the course, and becomes its folder.
    MODEL = auto()
    # Paths: - stands for standard input, and becomes a file with a copy of it.
    INPUT_FILE = auto()
    # Texts: - stands for standard input, and becomes its text.
    INPUT_TEXT = auto()


@dataclass(frozen=True)
class MayHold:
    """Note of an input that may hold the product: a function of both says whether it may."""

    allows: Callable[[Path, Path], bool]


def path(value: str) -> Path:
    """Return a path on the command line. The empty text is an error, which Path would take for the current folder."""
    if not value:
        raise typer.BadParameter("'' is not a path")
    return Path(value)


def product(value: str) -> Path:
    """Return the path of -o. Raises UsageError if it is a device, a pipe or standard output."""
    if value == "-":
        raise typer.BadParameter("standard output takes one text only; allowed: a path")
    return files.require_replaceable(path(value))


def text_product(value: str) -> Path:
    """Return the path of -o for a product that is one text; - is standard output."""
    return files.STANDARD_OUTPUT if value == "-" else product(value)


def output(help: str) -> typer.models.OptionInfo:
    """Return the option -o with a help text, for a product that is a file or folder."""
    info: typer.models.OptionInfo = typer.Option("-o", "--output", metavar="OUT", help=help, parser=product)
    return info


# The cores of this machine. More processes than this limit cost memory and gain nothing.
CORES = default_workers()
MOST_WORKERS = max(64, 4 * CORES)

# The product.
Output = Annotated[Path, output("path of the product"), Note.PRODUCT]
TextOutput = Annotated[
    Path,
    typer.Option(
        "-o", "--output", metavar="OUT", help="path of the product; - is standard output", parser=text_product
    ),
    Note.PRODUCT,
]

# What is read.
Prompts = Annotated[
    list[str],
    typer.Argument(metavar="PROMPT", help="raw Japanese text; - reads standard input"),
    Note.INPUT_TEXT,
]
Config = Annotated[
    Path | None,
    typer.Option("-c", "--config", metavar="FILE", help="YAML settings, or the name of a profile", parser=path),
    Note.CONFIG,
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="one setting (dotted key); repeatable")
]

# How it is done.
Workers = Annotated[
    int,
    typer.Option("--workers", min=1, max=MOST_WORKERS, help="processes; default: the cores of this machine"),
]

# What command.py adds to every command; --json to those that return something.
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]
Quiet = Annotated[
    bool, typer.Option("-q", "--quiet", help="print no progress and no messages, only results and errors")
]
Profile = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="profile to use instead of COURSE_PROFILE")
]
