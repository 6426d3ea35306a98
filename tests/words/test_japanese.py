"""The Japanese edition is in step with the English one: catalogues, pages and notebooks."""

import shutil
from pathlib import Path

import nbformat
import pytest
from course_lib.language import catalogs, editions, words
from course_lib.paths import NOTEBOOKS
from course_lib.workspace import chapters
from course_lib.workspace.chapters import CHAPTERS

LANGUAGE = "ja"
PATHS = [path for chapter in CHAPTERS for path in chapter.paths]


def test_no_translation_is_missing_or_fuzzy() -> None:
    assert catalogs.problems(LANGUAGE) == []


def test_the_catalogues_are_compiled(tmp_path: Path) -> None:
    own = catalogs.po_file(LANGUAGE, catalogs.COURSE).parent
    shutil.copytree(own, tmp_path / LANGUAGE / own.name)
    catalogs.update(LANGUAGE, tmp_path)
    for path in own.glob("*.po"):
        assert (tmp_path / LANGUAGE / own.name / path.name).read_bytes() == path.read_bytes(), "run `course words ja`"
    compiled = Path(LANGUAGE) / own.name / "course.mo"
    assert (tmp_path / compiled).read_bytes() == (words.COMPILED / compiled).read_bytes()


def test_the_pages_and_notebooks_are_those_of_the_catalogues() -> None:
    for path, content in editions.files(LANGUAGE):
        assert path.read_bytes() == content, f"{path}: run `course notebooks --language ja`"


@pytest.mark.parametrize("source", PATHS, ids=[path.stem for path in PATHS])
def test_every_cell_was_executed_with_the_same_code(source: Path) -> None:
    english, own = (
        [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        for path in (source, NOTEBOOKS / LANGUAGE / source.name)
    )
    assert [(cell.id, cell.source) for cell in own] == [(cell.id, cell.source) for cell in english]
    assert all(cell.execution_count for cell in own), "run `course notebooks --language ja --execute`"


def test_the_course_runs_the_notebooks_of_the_readers_language(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executed: list[Path] = []
    monkeypatch.setattr("course_lib.notebooks.execution.execute", lambda source, target: executed.append(source))
    for language in ("", LANGUAGE):
        monkeypatch.setenv(words.VARIABLE, language)
        chapters._run_notebook(PATHS[0], tmp_path, [])
    assert executed == [PATHS[0], NOTEBOOKS / LANGUAGE / PATHS[0].name]
