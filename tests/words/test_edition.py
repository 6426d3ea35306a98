"""A pseudo-translation of all notebooks: the code stays the same, and no English is left in what a reader sees."""

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from course_lib.language import editions, pages
from course_lib.notebooks import execution as notebooks
from course_lib.paths import REPOSITORY
from course_lib.workspace.chapters import CHAPTERS

from tests.words import pseudo

PATHS = [path for chapter in CHAPTERS for path in chapter.paths]
# The notebook that is executed; it builds its products in seconds.
EXECUTED = "02_normalize_and_segment"
# What the executed notebook shows of its data, of Python's errors, and of names.
DATA = {"Visual", "Studio", "Code", "example"}
PYTHON = {"invalid", "continuation", "byte", "ZeroDivisionError", "division", "zero", "int"}
NAMES = {"Unigram", "DeepSpeed", "FasterTransformer", "Triton", "corpus", "webtext", "wikipedia", "mecab"}
# Cells that show wrong answers, hints and solutions.
ASKED = """\
exercises.check(1, "ＬＬＭ")
exercises.hint(1)
exercises.solution(1)
exercises.check(2, (1, 2))
exercises.check(2, ("a", "b", "c"))
exercises.hint(2)
exercises.check(3, lambda marked: marked)
exercises.check(3, 5)
exercises.check(3, lambda marked: 1 / 0)
exercises.check(3, exercises.CHAPTER.exercises[2].solution)
exercises.check(4, 2)
exercises.hint(4)
exercises.solution(4)"""


def code_of(path: Path) -> list[tuple[str, str, Any]]:
    cells = nbformat.read(path, as_version=4).cells
    return [(cell.id, cell.source, cell.metadata) for cell in cells if cell.cell_type == "code"]


@pytest.fixture
def edition(catalogues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COURSE_LOCALE", str(catalogues))
    built = editions.build(pseudo.LANGUAGE, tmp_path)
    assert built == [tmp_path / "notebooks" / path.name for path in PATHS]
    return tmp_path / "notebooks"


def test_code_is_the_same_and_no_prose_is_english(edition: Path) -> None:
    for source in PATHS:
        built = edition / source.name
        assert code_of(built) == code_of(source)
        for cell in nbformat.read(built, as_version=4).cells:
            if cell.cell_type == "markdown" and "badge" not in cell.metadata.get("tags", []):
                assert pseudo.english(pseudo.prose(cell.source)) == [], (source.name, cell.id)


def test_no_page_is_english_and_its_links_lead_on(edition: Path) -> None:
    for source in pages.pages():
        page = edition.parent / source.relative_to(REPOSITORY)
        text = page.read_text(encoding="utf8")
        # Lines of directives, and the front matter of pages.
        left = re.sub(r"(?m)^:.*$|\A---\n[^-]*---$", "", text)
        assert pseudo.english(pseudo.prose(left)) == [], source
        links = [link[2] for link in editions.LINK.finditer(text) if link[2] and "://" not in link[2]]
        assert [link for link in links if not (page.parent / link).exists()] == [], source


def test_links_name_the_translated_headings(edition: Path) -> None:
    index = (edition.parent / "docs" / "instructor" / "index.md").read_text(encoding="utf8")
    (named,) = re.findall(r"\]\(room\.md#(.*?)\)", index)
    assert named in pages.anchors((edition.parent / "docs" / "instructor" / "room.md").read_text(encoding="utf8"))
    assert named != "the-day-before"


def test_the_edition_has_its_own_badge_and_its_links_lead_on(edition: Path) -> None:
    cells = nbformat.read(edition / "03_tokenizers.ipynb", as_version=4).cells
    text = "\n".join(cell.source for cell in cells)
    assert f"notebooks/{pseudo.LANGUAGE}/03_tokenizers.ipynb" in text
    links = [link[2] for link in editions.LINK.finditer(text) if "://" not in link[2]]
    assert links and all((edition / link).exists() for link in links)


def test_outputs_are_kept_while_the_code_is_the_same(edition: Path) -> None:
    path = edition / "03_tokenizers.ipynb"
    stored = nbformat.read(path, as_version=4)
    first, second = [cell for cell in stored.cells if cell.cell_type == "code"][1:3]
    for cell in (first, second):
        cell.outputs, cell.execution_count = [nbformat.v4.new_output("stream", text="x\n")], 7
    second.source += "\n# changed"
    nbformat.write(stored, path)
    editions.build(pseudo.LANGUAGE, edition.parent)
    found = {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}
    assert found[first.id].outputs[0].text == "x\n" and found[first.id].execution_count == 7
    assert found[second.id].outputs == [] and "# changed" not in found[second.id].source


def readable_figures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes notebooks show figures as SVG images whose texts are texts."""
    profile = folder / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text("c.InlineBackend.figure_formats = {'svg'}\n", encoding="utf8")
    (folder / "matplotlibrc").write_text("svg.fonttype: none\n", encoding="utf8")
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    monkeypatch.setenv("MATPLOTLIBRC", str(folder / "matplotlibrc"))


@pytest.mark.timeout(600)
def test_an_executed_notebook_shows_no_english(
    edition: Path, tmp_path: Path, own_workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = edition / f"{EXECUTED}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells += [nbformat.v4.new_code_cell(line) for line in ASKED.split("\n")]
    nbformat.write(notebook, path)
    with monkeypatch.context() as patch:
        readable_figures(tmp_path, patch)
        notebooks.execute(path, path, pseudo.LANGUAGE)
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    texts = {cell.id: [text for text in pseudo.shown(cell) if text.strip()] for cell in cells}
    assert {
        cell: left for cell in texts if (left := set(pseudo.english(" ".join(texts[cell]))) - DATA - PYTHON - NAMES)
    } == {}
    # The figure and the drawings were read, and every question got an answer.
    assert any("répláçéd" in text for each in texts.values() for text in each)
    assert all(texts[cell.id] for cell in cells[-len(ASKED.split("\n")) :])


def test_the_stored_notebooks_are_json_with_readable_characters(edition: Path) -> None:
    text = (edition / f"{EXECUTED}.ipynb").read_text(encoding="utf8")
    assert "東京" in text and text.endswith("}\n") and json.loads(text)["nbformat"] == 4
