import copy

import nbformat
import pytest
from course_lib.workspace.chapters import CHAPTERS

from course_authors.notebooks import SETUP
from tests.notebooks.blanks import is_blank
from tests.notebooks.rules import ALL_WORDS, OPTIONAL, code_cells, problems, unlike_the_others, words

NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for chapter in CHAPTERS for path in chapter.paths}
BLANK = 'def f(x):\n    """Return x, (n)."""\n    ...\n\n\nexercises.check(1, f)'
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form", "tags": ["hide-input"]}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_keeps_the_rules(name: str) -> None:
    assert problems(NOTEBOOKS[name], f"{name}.ipynb") == []


@pytest.mark.rehearse
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_no_longer_and_built_as_the_others(name: str) -> None:
    assert unlike_the_others(NOTEBOOKS[name], f"{name}.ipynb") == []


@pytest.mark.rehearse
def test_the_course_is_no_longer_than_it_was() -> None:
    assert sum(words(notebook) for name, notebook in NOTEBOOKS.items() if name not in OPTIONAL) <= ALL_WORDS


def broken(notebook: nbformat.NotebookNode) -> list[str]:
    return [*problems(notebook, "01_corpus_prep.ipynb"), *unlike_the_others(notebook, "01_corpus_prep.ipynb")]


@pytest.mark.rehearse
def test_blanks_are_exercises_and_folded_cells_do_not_count_as_long() -> None:
    blank = nbformat.v4.new_code_cell(BLANK)
    method = nbformat.v4.new_code_cell("class A:\n    def f(self):\n        ...\n\n\nexercises.check(2, A)")
    assert is_blank(blank) and is_blank(method) and not is_blank(nbformat.v4.new_code_cell("exercises.check(1, f)"))
    notebook = copy.deepcopy(NOTEBOOKS["01_corpus_prep"])
    kinds = "".join(cell.cell_type[0] for cell in notebook.cells)
    before, at = broken(notebook), kinds.rindex("mm") + 1
    solved = "# @title The course's version\n" + "\n".join(f"x = {n}" for n in range(39))
    folded = nbformat.v4.new_code_cell(solved, metadata=FOLDED)
    notebook.cells[at:at] = [blank, *[copy.deepcopy(folded) for _ in range(4)]]
    for number, cell in enumerate(code_cells(notebook), 1):
        cell.execution_count = number
    assert broken(notebook) == before
    notebook.cells[at + 1].source += "\nx = 40"
    notebook.cells[at + 2].metadata.pop("cellView")
    notebook.cells[at + 3].source = "x = 1"
    found = " ".join(broken(notebook))
    assert all(said in found for said in ("41 lines, allowed: 40", "not in JupyterLab and Colab", "no `# @title`"))


def test_every_notebook_is_listed() -> None:
    assert sorted(path.stem for path in CHAPTERS[0].paths[0].parent.glob("*.ipynb")) == sorted(NOTEBOOKS)


def test_setup_cell_keeps_colabs_torch_and_numpy() -> None:
    assert "torch==" not in SETUP and "numpy==" not in SETUP


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
