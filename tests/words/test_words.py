"""Texts in the reader's language: what is translated, what stays as it is, and what is refused."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from gettext import GNUTranslations
from pathlib import Path

import pytest
from babel.messages import Catalog
from babel.messages.pofile import read_po, write_po
from course_lib.errors import UsageError
from course_lib.language import words
from course_lib.language.columns import aligned, padded
from course_lib.language.words import tr

from course_authors import catalogs

MESSAGES = {
    "documents": "文書",
    "{number} documents below {limit:.2f}": "{limit:.2f}未満の文書は{number}件",
    "{number} tokens": "トークン",  # the field is missing
    'quoted "{name}"\n\ttab \\': "引用「{name}」\n\t\\",
    "not translated": "",
}
CELLS = [
    "import course_lib",
    'word = "text"',
    'print(word, [word], {"text": len("documents in")}, f"{word:<6}|", "text")',
]


@pytest.fixture
def japanese(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    catalog = Catalog(locale="ja")
    for text, translation in MESSAGES.items():
        catalog.add(text, translation)
    catalog.add("reports", "報告書", flags={"fuzzy"}, previous_id="a report")
    path = tmp_path / "ja" / "LC_MESSAGES" / "course.po"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        write_po(file, catalog)
    monkeypatch.setattr(words, "CATALOGUES", tmp_path)
    catalogs.compile_library("ja")
    monkeypatch.setenv("COURSE_LANG", "ja")
    words._catalogue.cache_clear()
    yield path
    words._catalogue.cache_clear()


def test_english_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_LANG", "")
    assert tr("documents") == "documents" and tr("{number:,} documents", number=1234) == "1,234 documents"


@pytest.mark.usefixtures("japanese")
def test_a_message_is_translated_with_its_fields() -> None:
    assert tr("documents") == "文書" and tr("reports") == "報告書"
    assert tr("{number} documents below {limit:.2f}", number=3, limit=0.5) == "0.50未満の文書は3件"
    assert tr("{number} tokens", number=3) == "3 tokens"
    assert tr("unknown") == "unknown" and tr("") == ""


def test_a_language_without_a_catalogue_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_LANG", "../ja")
    with pytest.raises(UsageError, match="en, ja"):
        tr("documents")


def test_catalogues_are_read_as_babel_reads_them(japanese: Path) -> None:
    for path in (japanese, catalogs.LIBRARY / "locale/ja/LC_MESSAGES/course.po"):
        with path.open("rb") as file:
            found = {str(each.id): str(each.string) for each in read_po(file) if each.id and each.string}
        found.pop("{number} tokens", None)
        with path.with_suffix(".mo").open("rb") as file:
            compiled = GNUTranslations(file)
        assert {text: compiled.gettext(text) for text in found} == found


def test_columns_have_the_same_width_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_LANG", "ja")
    assert padded("状態", "<6") == "状態  " and padded("状態", ">3") == "状態"
    assert aligned([("状態", "a"), ("a", "大きさ")], right={1}) == ["状態       a", "a     大きさ"]


def test_print_leaves_values_alone_in_a_notebook() -> None:
    """Japanese notebooks once printed translated values: テキスト for "text", also as keys of dictionaries."""
    code = (
        f"from IPython.core.interactiveshell import InteractiveShell as S\nfor c in {CELLS!r}: S.instance().run_cell(c)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"COURSE_LANG": "ja"}
    )
    assert ran.stdout == "text ['text'] {'text': 12} text  | text\n", ran.stderr


@pytest.mark.rehearse
def test_babel_finds_every_message() -> None:
    """It does not look into the fields of f-strings."""
    for path in sorted(catalogs.LIBRARY.rglob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))) if isinstance(node, ast.Call)]
        said = [node.args[0] for node in calls if getattr(node.func, "id", "") == "tr"]
        literals = {node.value for node in said if isinstance(node, ast.Constant)}
        assert literals <= {entry.text for entry in catalogs.marked(path)}, path
