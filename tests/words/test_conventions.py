"""Where an author could forget the reader's language: code cells, figures, drawings and the verdicts of exercises."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from course_lib.catalogs import BAR, LIBRARY, MARKS
from course_lib.cell_words import WORD

from tests.notebooks.rules import untranslated

MODULES = sorted([*LIBRARY.rglob("figures.py"), *LIBRARY.rglob("diagrams.py"), LIBRARY / "road.py"])
EXERCISES = sorted((LIBRARY / "exercises").glob("*.py"))
# Keywords whose text a reader sees, in figures.
LABELS = ("label", "title", "xlabel", "ylabel", "text")
# Settings of matplotlib, names, and the beginning of a report's keys.
NO_WORDS = {
    "offset points",
    "outside lower center",
    "lower center",
    "lower right",
    "Hugging Face",
    "gRPC 8001",
    "HTTP 8000",
}
NO_WORDS |= {"characters of ", "sections and layout", "MLP", "GB", "MB"}


def unmarked(tree: ast.AST) -> Iterator[str]:
    """The English texts that a module shows without `tr`, `mark` or `heading`: with a space, or as a label."""
    yield from _unmarked(tree, False)


def _unmarked(node: ast.AST, label: bool) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in (*MARKS, BAR, "Exercise", "print"):
            return
        case ast.Raise() | ast.Compare() | ast.arguments() | ast.AnnAssign():
            return
        case ast.Expr(value=ast.Constant()) | ast.Subscript(slice=ast.Constant()):
            return
        case ast.Constant(value=str(text)):
            spaced = " " in text.strip() and WORD.search(text)
            if (spaced or (label and re.search("[a-z]{3}", text))) and text not in NO_WORDS:
                yield text
            return
        case ast.keyword(arg=name):
            label = name in LABELS
            # Other keywords are settings of the figure.
            if not label and isinstance(node.value, ast.Constant):
                return
    for child in ast.iter_child_nodes(node):
        yield from _unmarked(child, label)


@pytest.mark.parametrize("path", MODULES, ids=[path.relative_to(LIBRARY).as_posix() for path in MODULES])
def test_figures_and_drawings_show_their_words_through_tr(path: Path) -> None:
    assert list(unmarked(ast.parse(path.read_text(encoding="utf8")))) == []


@pytest.mark.parametrize("path", EXERCISES, ids=[path.name for path in EXERCISES])
def test_verdicts_go_through_tr(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf8"))
    checks = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("_check")]
    assert [text for check in checks for text in unmarked(check)] == []


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ('axis.set(xlabel="loss per step")', ["loss per step"]),
        ('axis.set(xlabel="step")', ["step"]),
        ('axis.set(xlabel=tr("step"), xscale="log")', []),
        ('canvas.text(1, 2, "the road", anchor="start")', ["the road"]),
        ('canvas.text(1, 2, f"band {number} of many")', [" of many"]),
        ('canvas.text(1, 2, tr("band {number}", number=n))', []),
        ('def f():\n    """Draw the road."""\n    raise UsageError("the road is too long")', []),
    ],
)
def test_the_rule_for_modules_sees_what_breaks_it(code: str, texts: list[str]) -> None:
    assert list(unmarked(ast.parse(code))) == texts


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ('print(f"{n} documents are left")', []),
        ('print("%d documents are left" % n)', []),
        ('figures.loss(log, "loss of a token")', []),
        ('figures.loss(log, title="loss of a token")', []),
        ('print(name)\nlabel = "loss of " + name', ["loss of "]),
        ('label = tr("loss of") + name', []),
        ('if text == "all of it": print(text)', ["all of it"]),
        ('def f():\n    """Return all of it."""', []),
        ('text = "Visual Studioで学ぶ"', []),
        ('run(["--set", "batch.size=3"])', []),
    ],
)
def test_the_rule_for_cells_sees_what_breaks_it(code: str, texts: list[str]) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    assert untranslated(notebook) == texts
