"""What of the Japanese edition is behind the English one: it stays as it is until it is translated, and is not tested."""

from functools import cache
from pathlib import Path

import pytest
from course_lib.notebooks.drawing import FOLDER as DRAWINGS
from course_lib.paths import NOTEBOOKS, REPOSITORY

from course_authors import catalogs, editions

LANGUAGE = "ja"


@cache
def behind() -> set[str]:
    """Names in the repository of stored files that are behind, and of the library if its messages are."""
    files = {path.relative_to(REPOSITORY).as_posix() for path in editions.behind(LANGUAGE)}
    return files | ({catalogs.LIBRARY.name} & set(catalogs.open_parts(LANGUAGE)))


def skip_if_behind(*names: str) -> None:
    """Skips a test of files such as notebooks/ja/01_corpus_prep.ipynb, or of what the library says, course_lib."""
    if late := sorted(behind() & set(names)):
        pytest.skip(f"behind the English: {', '.join(late)}; `course words {LANGUAGE} --check` lists all")


def notebook(source: Path) -> str:
    """The name of the stored edition of an English notebook."""
    return (NOTEBOOKS / LANGUAGE / source.name).relative_to(REPOSITORY).as_posix()


def drawing(name: str) -> str:
    """The name of the stored edition of a drawing."""
    return (DRAWINGS / LANGUAGE / f"{name}.svg").relative_to(REPOSITORY).as_posix()
