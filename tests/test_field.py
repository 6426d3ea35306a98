"""docs/field.md: its tables of characters and filters are those of the code, and each fact's row has a source."""

import re
from pathlib import Path

import pytest
from course_lib.corpus.config import DedupConfig

from tests import field_page

TEXT = field_page.PAGE.read_text(encoding="utf8")


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """The cells of the rows of a section's tables, without headings."""
    lines = re.findall(r"^\| (.*) \|$", section(title), re.MULTILINE)
    return [line.split(" | ") for line in lines][1:]


def test_the_table_of_characters_is_what_normalize_does() -> None:
    assert TEXT.partition(field_page.BEGIN)[2].partition(field_page.END)[0] == field_page.characters()


@pytest.mark.parametrize(("typed", "what"), field_page.CHARACTERS)
def test_named_code_points_are_in_the_text(typed: str, what: str) -> None:
    named = re.findall(r"(?<!\()U\+([0-9A-F]{4,5})", what)
    assert all(chr(int(code, 16)) in typed for code in named)


def test_invisible_characters_are_shown_as_code_points() -> None:
    assert field_page.shown("か\u3099 a") == "`か` U+3099 U+0020 `a`"


def test_the_table_is_written_between_its_comments(tmp_path: Path) -> None:
    page = tmp_path / "field.md"
    page.write_text(f"before\n\n{field_page.BEGIN}| old |\n{field_page.END}\n\nafter\n", encoding="utf8")
    field_page.write(page)
    text = page.read_text(encoding="utf8")
    assert "old" not in text and field_page.characters() in text
    assert text.startswith("before\n\n<!--") and text.endswith("-->\n\nafter\n")


def test_the_filters_are_those_of_the_code() -> None:
    assert [row[:3] for row in rows("The nine filters beside Swallow's")] == field_page.filters()


def test_the_deduplication_is_that_of_the_code() -> None:
    dedup = DedupConfig()
    said = f"n-grams of {dedup.ngram} characters, {dedup.num_perm} values in {dedup.num_bands} bands, similarity {dedup.similarity}"
    assert said in section("The nine filters beside Swallow's")
    assert f"lines of at least {dedup.line_chars} characters" in section("The nine filters beside Swallow's")


@pytest.mark.parametrize(("title", "least"), [("Models", 16), ("Corpora", 9), ("Benchmarks", 9)])
def test_every_row_has_a_source(title: str, least: int) -> None:
    found = rows(title)
    assert len(found) >= least
    assert [row[0] for row in found if not re.search(r"\]\(https://", row[-1])] == []
