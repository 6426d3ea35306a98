"""The verbs for authors: `course words` and `course notebooks`."""

from collections.abc import Sequence
from typing import Annotated

from course_lib.errors import CourseError, UsageError
from course_lib.notebooks import execution
from course_lib.paths import NOTEBOOKS

from course_authors import catalogs, editions
from course_authors import notebooks as tools


def words(
    language: Annotated[str, "code of the language, such as ja"],
    *,
    check: Annotated[bool, "change nothing; list what is missing or fuzzy"] = False,
    release: Annotated[bool, "with --check: fail if anything is listed"] = False,
    accept: Annotated[str, "a fuzzy text, as --check names it: its translation is right"] = "",
) -> None:
    """For authors: bring a language's catalogues in step with the English texts."""
    if not check:
        catalogs.update(language, accept)
    texts = catalogs.open_texts(language)
    for line in texts:
        print(line)
    if release and texts:
        raise CourseError(f"{language}: {len(texts)} texts to translate; CONTRIBUTING.md, Words, says how")
    print(f"{language}: {len(texts)} texts to translate")


def notebooks(
    *,
    execute: Annotated[bool, "also run each notebook in place and store its outputs"] = False,
    only: Annotated[Sequence[str], "beginning of a notebook's name, such as 05; repeatable"] = ("",),
    language: Annotated[str | None, "write the notebooks and pages in this language"] = None,
) -> None:
    """For authors: update each notebook's badge and set-up cell from pyproject.toml, tidy it, export figures."""
    paths = editions.build(language) if language else sorted(NOTEBOOKS.glob("*.ipynb"))
    chosen = [path for path in paths if path.name.startswith(tuple(only))]
    if not chosen:
        raise UsageError(f"--only: no notebook begins with {', '.join(only)}")
    for path in chosen:
        if not language:
            tools.refresh(path)
        if execute:
            execution.execute(path, path)
        tools.export_images(path)
        print(f"{path.name}: written{', executed' if execute else ''}")
    if language and execute:
        # The pages show the figures of the notebooks, which may be new.
        editions.build(language)
