import copy

import nbformat
import pytest
from course_lib.workspace.chapters import CHAPTERS

from course_authors.notebooks import SETUP
from tests.notebooks.rules import code_cells, problems

NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for chapter in CHAPTERS for path in chapter.paths}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_keeps_the_rules(name: str) -> None:
    assert problems(NOTEBOOKS[name], f"{name}.ipynb") == []


def test_every_notebook_is_listed() -> None:
    assert sorted(path.stem for path in CHAPTERS[0].paths[0].parent.glob("*.ipynb")) == sorted(NOTEBOOKS)


def test_setup_cell_is_short() -> None:
    assert len(SETUP.strip().split("\n")) <= 8 and "torch==" not in SETUP and "numpy==" not in SETUP


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (nbformat.v4.new_output("error", ename="E", evalue="", traceback=[]), "ends in an error"),
        (nbformat.v4.new_output("stream", text="wrote /home/me/x\n"), "machine path"),
        (nbformat.v4.new_output("stream", text="江戸\ufffd\n"), "replacement character"),
    ],
)
def test_the_rules_see_what_breaks_them(output: nbformat.NotebookNode, message: str) -> None:
    notebook = copy.deepcopy(NOTEBOOKS["01_corpus_prep"])
    code_cells(notebook)[2].outputs.append(output)
    assert any(message in problem for problem in problems(notebook, "01_corpus_prep.ipynb"))
