"""The words of code cells: which are messages, and that rewriting a cell changes nothing but its words."""

import ast
import contextlib
import io
from pathlib import Path
from typing import Any

import nbformat
import pytest
from course_lib.language.cell_words import Words, messages
from course_lib.workspace.chapters import CHAPTERS

from tests.words.test_words import install

CELLS = [
    (path.stem, cell.id, cell.source)
    for chapter in CHAPTERS
    for path in chapter.paths
    for cell in nbformat.read(path, as_version=4).cells
    if cell.cell_type == "code" and "setup" not in cell.metadata.get("tags", [])
]
PRELUDE = "n, name, row, items = 1234, 'training', {'loss': 0.5}, ['a', 'b']\ndef f(x): return x\n"
# printed in another way than formatted, like a tensor with one number
PRELUDE += "class Odd:\n __str__ = lambda self: 'printed'\n __format__ = lambda self, spec: 'formatted'\nodd = Odd()\n"
# code, and its messages
SNIPPETS: list[tuple[str, list[str]]] = [
    ('print(f"{n:,} documents")', ["{n} documents"]),
    ('print("documents:", n, "in", items)', ["documents: {n} in {items}"]),
    ('print(f"{len(items)} of", f"{n}")', ["{1} of {n}"]),
    ('print(f"{n} and {n:,} and {n:,}")', ["{n} and {2} and {2}"]),
    ('print("the words:", *items, sep=" | ")', ["the words:"]),
    ('print("no words:", *[], end="|")\nprint(*[], "at the end")', ["no words:", "at the end"]),
    ('print("the words:", n, sep=name)', ["the words:"]),
    ('numbers = iter(range(9))\nprint(f"{next(numbers)} and {next(numbers)}")', ["{1} and {2}"]),
    ('print(odd, f"is {odd}")', ["{odd} is {2}"]),
    ('print(max("a longer text", key=len))', ["a longer text"]),
    ('print(dict(title="two words", kind="word"), "x y".split(" "))', ["two words"]),
    ('print("no new line", end="")', ["no new line"]),
    ('print(f"{name:<12}{n:>8}|")', []),
    ("print()", []),
    ("print(*items)", []),
    ("print(f\"{'yes' if n else 'or no'} {name!r:12} {n!s} {name!a}\")", ["yes", "or no"]),
    ("print(f\"loss {row['loss']:{n % 9 + 4}.2f}\")", ["loss {1}"]),
    ('print(", ".join(f"{key} {value:.1f}" for key, value in row.items()), "nats")', ["{1} nats"]),
    ('print(f("data point"), "is given")', ["{1} is given", "data point"]),
    ('print("{n} rows of {0}".format(3, n=n))', ["{n} rows of {0}"]),
    ('print("{n} rows".format(n=n), "of words")', ["{n} rows", "{1} of words"]),
    ('print("%d rows" % n)', ["%d rows"]),
    ('print(f"{{literal}} braces {n}")', ["{literal} braces {n}"]),
    ('label = f"rate {n}"\nprint(label)', ["rate {n}"]),
    ('text = f"{name}.weight"\nprint(len(text))', []),
    ('x = {"web documents": 1, "weights": 2, "max_steps": 3}\nprint(x)', ["web documents", "weights"]),
    ('for kind in ("train", "held out"): print(kind)', ["train", "held out"]),
    ('if name == "training data": print(n)', []),
    ('print(row["loss"])', []),
    ('def g():\n    """Return nothing at all."""\n    print("inside", n)\ng()', ["inside {n}"]),
    ('print(*[f"{i} tokens" for i in range(2)])', ["{i} tokens"]),
    ('print("a sentence with", (lambda x: f"{x} words")(3))', ["a sentence with {1}", "{x} words"]),
    ('print("lines\\nand tabs\\t", n)', ["lines\nand tabs\t {n}"]),
    ('print("日本語", n)', []),
    ('options = {"sep": "-"}\nprint("keyword words", n, **options)', ["sep", "keyword words"]),
]


def printed(tree: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(ast.fix_missing_locations(tree), "cell", "exec"), {})
    return out.getvalue()


@pytest.mark.parametrize(("code", "expected"), SNIPPETS)
def test_the_messages_of_a_cell(code: str, expected: list[str]) -> None:
    assert [message.text for message in messages(code)] == expected


@pytest.mark.parametrize("code", [code for code, _ in SNIPPETS])
def test_with_an_empty_catalogue_a_cell_prints_the_same(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = printed(ast.parse(PRELUDE + code))
    install(tmp_path, monkeypatch, {})
    assert printed(Words().visit(ast.parse(PRELUDE + code))) == plain


def test_with_a_catalogue_a_cell_prints_its_translation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "{1} documents below {limit}": "{limit}未満：{1}件",
        "training": "学習用",
        "step {step:3}": "ステップ{step:3}",
    }
    install(tmp_path, monkeypatch, given)
    code = """
limit, low, data = 0.5, [1, 2], {"training": "x.weight"}
print(f"{len(low)} documents below", f"{limit:.2f}")
for name in ("training",):
    print(f"{name:<8}|{data[name]}")
print("step {step:3}".format(step=7))
"""
    assert printed(Words().visit(ast.parse(code))) == "0.50未満：2件\n学習用  |x.weight\nステップ  7\n"


def test_fields_are_evaluated_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, {"{1} before {2}": "{2}より{1}"})
    code = "seen = []\nadd = lambda x: seen.append(x) or x\nprint(f'{add(1)} before {add(2)}')\nprint(seen)"
    assert printed(Words().visit(ast.parse(code))) == "2より1\n[1, 2]\n"


@pytest.mark.parametrize(("notebook", "cell", "source"), CELLS, ids=[f"{name}-{cell}" for name, cell, _ in CELLS])
def test_every_cell_can_be_rewritten(notebook: str, cell: str, source: str) -> None:
    compile(ast.fix_missing_locations(Words().visit(ast.parse(source))), cell, "exec")


def test_a_kernel_translates_the_cells_after_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from course_lib.language import cell_words
    from IPython.core.interactiveshell import InteractiveShell

    install(tmp_path, monkeypatch, {"{n} documents": "文書{n}件"})
    shell: Any = InteractiveShell()
    try:
        monkeypatch.setattr("IPython.get_ipython", lambda: shell)
        cell_words.install()
        cell_words.install()
        assert len(shell.ast_transformers) == 1
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            shell.run_cell('n = 3\nprint(f"{n} documents")')
        assert out.getvalue() == "文書3件\n"
    finally:
        InteractiveShell.clear_instance()
