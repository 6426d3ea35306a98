"""Where an author could forget the reader's language: code cells, figures, drawings and the verdicts of exercises."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from course_lib.language.catalogs import BAR, LIBRARY, MARKS
from course_lib.language.cell_words import WORD

from tests.notebooks.rules import untranslated

MODULES = sorted([*LIBRARY.rglob("figures.py"), *LIBRARY.rglob("diagrams.py")])
EXERCISES = sorted((LIBRARY / "exercises").glob("*.py"))
# Modules that print, except those for authors, and the functions that print.
SAID = ("print", "echo", "say")
SUMMARIES = ("summary", "table", "title", "lines", "costs", "machine", "origin", "speeds")
PRINTING = [path for path in sorted(LIBRARY.rglob("*.py")) if path != LIBRARY / "command_line" / "words.py"]
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
NO_WORDS |= {"  ZeRO recompute", "characters of ", "sections and layout", "MLP", "GB", "MB"}


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


def untold(tree: ast.AST) -> Iterator[str]:
    """The English texts that a module prints without `tr`: the literals in what `print` or `say` gets."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute):
            name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
            if name in SAID:
                yield from (text for argument in call.args for text in _literals(argument))


def _literals(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            if re.search("[A-Za-z]{3}", text):
                yield text
        case ast.Call(func=ast.Attribute(value=ast.Constant() | ast.JoinedStr() as text)):
            # "{} documents".format(…) and ", ".join(…).
            yield from _literals(text)
            yield from (text for argument in node.args for text in _literals(argument))
        case ast.Call() | ast.Compare() | ast.Subscript():
            return
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _literals(child)


@pytest.mark.parametrize("path", MODULES, ids=[path.relative_to(LIBRARY).as_posix() for path in MODULES])
def test_figures_and_drawings_show_their_words_through_tr(path: Path) -> None:
    assert list(unmarked(ast.parse(path.read_text(encoding="utf8")))) == []


@pytest.mark.parametrize("path", PRINTING, ids=[path.relative_to(LIBRARY).as_posix() for path in PRINTING])
def test_what_is_printed_goes_through_tr(path: Path) -> None:
    texts = set(untold(ast.parse(path.read_text(encoding="utf8"))))
    # What cli.py puts before an error, and how it knows the help.
    assert texts - ({"course: "} if path.name == "cli.py" else set()) == set()


@pytest.mark.parametrize("path", PRINTING, ids=[path.relative_to(LIBRARY).as_posix() for path in PRINTING])
def test_summaries_and_tables_go_through_tr(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in SUMMARIES]
    assert [text for function in functions for text in unmarked(function)] == []


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ('print("all stages are done")', ["all stages are done"]),
        ('print(f"{number} documents → {output}")', [" documents → "]),
        ('print("{} documents".format(3))', ["{} documents"]),
        ("print(', '.join(f'{name} left' for name in names))", [" left"]),
        ('self.say("done" if ended else name)', ["done"]),
        ('print(tr("{number} documents", number=3), end="")', []),
        ("print(f\"{heading('state', '<9')}{size:>9} → {row['product']}\", file=sys.stderr)", []),
        ('print(json.dumps(content, indent=1) if name == "json" else table(rows))', []),
    ],
)
def test_the_rule_for_prints_sees_what_breaks_it(code: str, texts: list[str]) -> None:
    assert list(untold(ast.parse(code))) == texts


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
