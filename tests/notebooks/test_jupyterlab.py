"""The notebooks in a real JupyterLab with headless Chromium: run by its menu, with progress bars, exercises and drawings.

Screenshots of each notebook are written to output/jupyterlab/NOTEBOOK/. By default, 01 and 02 are opened, which run
within seconds; COURSE_JUPYTERLAB=all opens all nine (16 minutes more). Without a Chromium on PATH, all are skipped.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from course_lib.corpus.diagrams import banding
from course_lib.notebooks.drawing import drawing as load_drawing
from course_lib.paths import REPOSITORY
from course_lib.workspace.chapters import CHAPTERS

from tests.browser import chromium
from tests.notebooks.lab import HEIGHT, WIDTH, Notebook, running_lab
from tests.waiting import LIMIT

NOTEBOOKS = {path.stem: path for chapter in CHAPTERS for path in chapter.paths}
QUICK = ("01_corpus_prep",)
# Runs in an empty workspace, so that its products are built while a test looks at the progress bars.
EMPTY = "02_normalize_and_segment"
OPENED = [name for name in NOTEBOOKS if name != EMPTY] if os.environ.get("COURSE_JUPYTERLAB") == "all" else list(QUICK)
# Starts ranks in its cells.
RANKS = "04_gpt2_zero2_pretraining"
SCREENSHOTS = REPOSITORY / "output/jupyterlab"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    yield page
    page.close()


@pytest.fixture(scope="module")
def lab(browser: Any, tmp_path_factory: pytest.TempPathFactory, shared_workspace: Path) -> Iterator[str]:
    """A JupyterLab on copies of all notebooks, with the session's workspace."""
    folder = tmp_path_factory.mktemp("lab") / "notebooks"
    shutil.copytree(REPOSITORY / "notebooks", folder)
    with running_lab(folder, shared_workspace) as address:
        yield address


def unfinished(bars: list[str]) -> list[str]:
    """The texts of visible bars that are not at their end. The course's own bars disappear; transformers leaves full ones."""
    return [text for text in bars if "100%" not in text]


@pytest.mark.parametrize("name", OPENED)
@pytest.mark.timeout(2 * LIMIT)
def test_notebook_runs_to_its_end(name: str, lab: str, page: Any) -> None:
    notebook = Notebook(page, lab, name)
    notebook.run_all()
    notebook.screenshots(SCREENSHOTS / name)
    assert unfinished(notebook.state()["bars"]) == []
    assert notebook.too_wide() == []
    broken = "() => [...document.querySelectorAll('.jp-OutputArea img')].filter(i => !i.naturalWidth).length"
    assert page.evaluate(broken) == 0
    if name == RANKS:
        said = "\n".join(notebook.bar_texts())
        assert 0 <= said.find("starting 2 ranks for GPT-2") < said.find("training GPT-2"), said
    notebook.close()


@pytest.mark.timeout(2 * LIMIT)
def test_empty_workspace_shows_what_is_built_and_exercises_are_judged(browser: Any, page: Any, tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    shutil.copy(NOTEBOOKS[EMPTY], folder)
    with running_lab(folder, tmp_path / "workspace") as address:
        notebook = Notebook(page, address, EMPTY)
        notebook.run_all()
        notebook.screenshots(SCREENSHOTS / EMPTY)
        assert unfinished(notebook.state()["bars"]) == []
        shares = [re.match(r"(\w+) .*?: +(\d+)%", text) for text in notebook.bar_texts()]
        seen = {
            label: {share[2] for share in shares if share and share[1] == label}
            for label in ("extracting", "segmenting")
        }
        assert all(len(percentages) >= 2 for percentages in seen.values()), notebook.bar_texts()
        _answer_first_exercise(notebook)
        page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
        saved = (folder / NOTEBOOKS[EMPTY].name).read_text(encoding="utf8")
        assert "0%|" not in saved and "widget-view" not in saved
        notebook.close()


def _answer_first_exercise(notebook: Notebook) -> None:
    number = notebook.cell_number("exercises.check(1")
    start = "from course_lib.exercises import japanese as exercises\n"
    cells = nbformat.read(NOTEBOOKS[EMPTY], as_version=4).cells
    folded = next(cell.source for cell in cells if "def split_ours" in cell.source)
    right = folded.partition("\n\nsplit = ")[0].replace("split_ours", "split")
    for answer, mark, color in (
        ("def split(text):\n    return text.split('。')", "✗", "rgb(180, 35, 24)"),
        (right, "✓", "rgb(26, 127, 55)"),
    ):
        output = notebook.run_cell(number, f"{start}{answer}\nexercises.check(1, split)")
        badge = output.locator("b").first
        assert mark in badge.inner_text()
        assert badge.evaluate("element => getComputedStyle(element).backgroundColor") == color
        # The hint, or the solution.
        more = output.locator("details").first
        assert not more.locator("p").first.is_visible()
        more.locator("summary").first.click()
        assert more.locator("p").first.is_visible()


def test_drawing_and_table_are_shown_in_an_untrusted_notebook(browser: Any, page: Any, tmp_path: Path) -> None:
    drawing = load_drawing("zero2-step")
    table = banding({"A": [3, 7], "B": [3, 8]}, 2)
    cells = []
    for number, data in enumerate((drawing._repr_mimebundle_(), table._repr_mimebundle_()), start=1):
        output = nbformat.v4.new_output("execute_result", data=data, execution_count=number)
        cells.append(nbformat.v4.new_code_cell("shown", outputs=[output], execution_count=number))
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), notebooks / "drawings.ipynb")
    with running_lab(notebooks, tmp_path / "workspace") as address:
        notebook = Notebook(page, address, "drawings")
        trusted = (
            "() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map(cell => cell.trusted === true)"
        )
        assert page.evaluate(trusted) == [False, False]
        image = page.locator(".jp-OutputArea img")
        assert image.count() == 1 and image.get_attribute("alt") == drawing.alt
        assert image.evaluate("element => element.naturalWidth") > 500
        shared = page.locator(".jp-OutputArea td", has_text="A, B")
        assert shared.evaluate("element => getComputedStyle(element).backgroundColor") == "rgb(219, 232, 246)"
        notebook.screenshots(SCREENSHOTS / "drawings")
        notebook.close()
