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


def spoil(change: str) -> nbformat.NotebookNode:
    notebook = copy.deepcopy(NOTEBOOKS["01_corpus_prep"])
    cell = code_cells(notebook)[2]
    match change:
        case "not executed":
            cell.execution_count = None
        case "error":
            cell.outputs.append(nbformat.v4.new_output("error", ename="E", evalue="", traceback=[]))
        case "too long":
            cell.source = "\n".join(["x = 1"] * 26)
        case "shell":
            cell.source = "!ls"
        case "path":
            cell.outputs.append(nbformat.v4.new_output("stream", text="wrote /home/me/x\n"))
        case "widget":
            notebook.metadata["widgets"] = {}
        case "three in a row":
            notebook.cells[8:8] = [copy.deepcopy(cell) for _ in range(3)]
        case "ignored":
            for each in code_cells(notebook)[:8]:
                each.metadata["tags"] = ["nbval-ignore-output"]
        case "marker":
            cell.source = "# NBVAL_IGNORE_OUTPUT\n" + cell.source
        case "wide":
            cell.source = f"x = '{'あ' * 100}'"
        case "booleans":
            cell.outputs.append(nbformat.v4.new_output("stream", text="True False True\nsame: True\n"))
        case "broken bytes":
            cell.outputs.append(nbformat.v4.new_output("stream", text="江戸�\n"))
        case "goals":
            goals = next(c for c in notebook.cells if "After this chapter" in c.source)
            notebook.cells.remove(goals)
            notebook.cells.append(goals)
        case "sources":
            for each in notebook.cells:
                each.source = each.source.replace("**Sources.**", "")
        case "road":
            for each in code_cells(notebook):
                each.source = each.source.replace("road(", "")
        case "functions":
            cell.source = "def a(): ...\ndef b(): ...\ndef c(): ...\ndef d(): ..."
        case "no outputs":
            for each in code_cells(notebook):
                each.outputs = []
        case "badge":
            next(
                c for c in notebook.cells if "badge" in c.metadata.get("tags", [])
            ).source = "[badge](https://elsewhere)"
        case "markdown":
            notebook.cells = [
                c for c in notebook.cells if c.cell_type == "code" or "##" in c.source or c.metadata.get("tags")
            ]
    return notebook


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("not executed", "was not executed"), ("error", "ends in an error"), ("too long", "26 lines"), ("shell", "shell escape"),
        ("path", "machine path"), ("widget", "widget state"), ("three in a row", "more than two code cells"),
        ("ignored", "not compared"), ("marker", "test marker"), ("functions", "more than 3 functions"), ("no outputs", "no outputs"),
        ("badge", "not in step"), ("markdown", "1.4 markdown cells"), ("wide", "wider than 100"), ("booleans", "True or False 4 times"),
        ("broken bytes", "replacement character"), ("goals", "goals after"), ("sources", "lacks '**Sources.**'"), ("road", "the road"),
    ],
)  # fmt: skip
def test_the_rules_see_what_breaks_them(change: str, message: str) -> None:
    assert any(message in problem for problem in problems(spoil(change), "01_corpus_prep.ipynb"))
