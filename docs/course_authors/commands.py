"""The commands for authors: `course words` and `course notebooks`."""

from typing import Annotated

from course_lib.errors import CourseError, UsageError
from course_lib.notebooks import execution
from course_lib.paths import NOTEBOOKS, REPOSITORY
from typer import Argument, Option

from course_authors import catalogs, editions, pages
from course_authors import notebooks as tools


def words(
    language: Annotated[str, Argument(metavar="LANGUAGE", help="code of the language, such as ja")],
    *,
    check: Annotated[bool, Option("--check", help="change nothing; say what is behind the English")] = False,
    texts: Annotated[bool, Option("--texts", help="list each text whose translation is missing or fuzzy")] = False,
    release: Annotated[bool, Option("--release", help="with --check: fail if anything is behind")] = False,
    accept: Annotated[str, Option("--accept", help="a fuzzy text, as --texts names it: its translation is right")] = "",
) -> None:
    """For authors: bring a language's catalogues in step with the English texts."""
    if not check:
        catalogs.update(language, accept)
    for line in catalogs.open_texts(language) if texts else ():
        print(line)
    parts, files = catalogs.open_parts(language), editions.behind(language)
    for part, number in parts.items():
        print(f"{part}: {number} texts to translate")
    counted = {pages.edition(REPOSITORY / part, language) for part in parts}
    for path in files:
        if path not in counted:
            print(f"{path.relative_to(REPOSITORY)}: behind the English")
    if not (compiled := catalogs.is_compiled(language)):
        print(f"{catalogs.mo_file(language)}: behind course.po; `course words {language}` compiles it")
    found = f"{language}: texts to translate: {sum(parts.values())}, files behind the English: {len(files)}"
    if release and (parts or files or not compiled):
        raise CourseError(f"{found}; CONTRIBUTING.md, Words, says how")
    print(found)


def notebooks(
    *,
    execute: Annotated[bool, Option("--execute", help="also run each notebook in place and store its outputs")] = False,
    only: Annotated[
        list[str] | None, Option("--only", help="beginning of a notebook's name, such as 05; repeatable")
    ] = None,
    language: Annotated[str | None, Option("--language", help="write the notebooks and pages in this language")] = None,
) -> None:
    """For authors: update each notebook's badge and set-up cell from pyproject.toml, tidy it, export figures."""
    beginnings = tuple(only or [""])
    names = [path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if path.name.startswith(beginnings)]
    chosen = editions.build(language, only=beginnings) if language and names else names
    if not chosen:
        raise UsageError(f"--only: no notebook begins with {', '.join(beginnings)}")
    for path in chosen:
        if not language:
            tools.refresh(path)
        if execute:
            execution.execute(path, path)
        tools.export_images(path)
        print(f"{path.name}: written{', executed' if execute else ''}")
    if language and execute:
        # The pages show the figures of the notebooks, which may be new.
        editions.build(language, only=beginnings)
