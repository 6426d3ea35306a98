"""Commands for translators: `course words`, and `course notebooks --language`."""

from pathlib import Path
from typing import Annotated

import typer

from course_lib.errors import CourseError, UsageError


def words(
    language: Annotated[str, typer.Argument(metavar="LANG", help="code of the language, such as ja")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="folder for the catalogues; default: the course's own"),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="change nothing; fail if a translation is missing or out of step")
    ] = False,
) -> None:
    """For authors: bring a language's catalogues in step with the English texts, and compile them."""
    from course_lib.language import catalogs

    if check:
        if output:
            raise UsageError("-o: not with --check, which writes nothing")
        if found := catalogs.problems(language):
            print("\n".join(found))
            raise CourseError(f"{language}: {len(found)} texts to translate; CONTRIBUTING.md, Words, says how")
        return
    for path, counts in catalogs.update(language, output).items():
        print(
            f"{path}: {counts.translated} translated, {counts.fuzzy} fuzzy, {counts.missing} missing, "
            f"{counts.obsolete} obsolete"
        )


def edition(language: str, folder: Path | None, execute: bool) -> None:
    """Write the notebooks in a language, and execute them if `execute` is true."""
    from course_lib.language import editions
    from course_lib.notebooks import execution as notebooks

    for path in editions.build(language, folder):
        if execute:
            notebooks.execute(path, path, language)
        notebooks.export_images(path)
        print(f"{path}: written{', executed' if execute else ''}")
    # The pages show the figures of the notebooks, which may be new.
    editions.build(language, folder)
