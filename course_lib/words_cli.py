"""Commands for translators: `course words`, and `course notebooks --language`."""

from pathlib import Path
from typing import Annotated

import typer


def words(
    language: Annotated[str, typer.Argument(metavar="LANG", help="code of the language, such as ja")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="folder for the catalogues; default: the course's own"),
    ] = None,
) -> None:
    """For authors: bring a language's catalogues in step with the English texts, and compile them."""
    from course_lib import catalogs

    for path, counts in catalogs.update(language, output).items():
        print(
            f"{path}: {counts.translated} translated, {counts.fuzzy} fuzzy, {counts.missing} missing, "
            f"{counts.obsolete} obsolete"
        )


def edition(language: str, folder: Path | None, execute: bool) -> None:
    """Write the notebooks in a language, and execute them if `execute` is true."""
    from course_lib import editions, notebooks

    for path in editions.build(language, folder):
        if execute:
            notebooks.execute(path, path, language)
        print(f"{path}: written{', executed' if execute else ''}")
