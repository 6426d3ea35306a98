"""The catalogues for translators: what is in them, and what becomes of translations when the English changes."""

from pathlib import Path

import pytest
from babel.messages import Catalog
from course_lib.errors import CourseError, UsageError
from course_lib.exercises import corpus
from course_lib.language import catalogs, editions
from course_lib.language.catalogs import COURSE, NOTEBOOKS


def new(entries: dict[str, str]) -> Catalog:
    """A catalogue of Markdown cells: key → English text."""
    catalog = Catalog(locale="ja")
    for key, text in entries.items():
        catalog.add(text, context=key)
    return catalog


def state(catalog: Catalog) -> list[tuple[str | None, str, str, bool, str]]:
    found = [message for message in catalog if message.id]
    return [(m.context, str(m.id), str(m.string or ""), m.fuzzy, "".join(m.previous_id)) for m in found]


def test_the_translation_of_a_changed_cell_is_kept_as_fuzzy_with_the_former_text() -> None:
    catalog = new({})
    catalog.add("Rain falls.", "雨が降る。", context="01 c1")
    catalog.add("Snow falls.", "雪が降る。", context="01 c2")
    changed = {"01 c2": "Snow falls.", "01 c1": "A text that shares nothing.", "01 c3": "Rain falls."}
    for _ in range(2):
        catalogs._in_step(catalog, new(changed), similar=False)
        assert state(catalog) == [
            ("01 c2", "Snow falls.", "雪が降る。", False, ""),
            ("01 c1", "A text that shares nothing.", "雨が降る。", True, "Rain falls."),
            ("01 c3", "Rain falls.", "", False, ""),
        ]
    assert catalogs.count(catalog) == (1, 1, 1, 0)


def test_the_translation_of_a_removed_cell_is_obsolete() -> None:
    catalog = new({})
    catalog.add("Rain falls.", "雨が降る。", context="01 c1")
    catalogs._in_step(catalog, new({"01 c2": "Rain falls."}), similar=False)
    assert state(catalog) == [("01 c2", "Rain falls.", "", False, "")]
    assert [message.string for message in catalog.obsolete.values()] == ["雨が降る。"]


def test_messages_without_a_key_find_a_similar_translation() -> None:
    catalog, changed = Catalog(locale="ja"), Catalog()
    catalog.add("{n} documents were removed", "{n}件の文書を除いた")
    changed.add("{n} documents are removed")
    catalogs._in_step(catalog, changed, similar=True)
    assert state(catalog)[0][2:4] == ("{n}件の文書を除いた", True)


def test_the_catalogues_hold_what_a_reader_sees() -> None:
    course, notebooks = catalogs.template(COURSE), catalogs.template(NOTEBOOKS)
    # printed in a cell, a label of a figure, a text of a drawing, a heading of a table, and a progress bar
    for text in (
        "{1} pages in, {2} articles out",
        "characters per token",
        "▼ you are here",
        "lossless",
        "removing repeats",
    ):
        assert course.get(text), text
    assert course.get(corpus.CHAPTER.exercises[0].hints[1], "corpus 1 hint 2")
    assert course.get("a plain reference", "corpus 1 case 1")
    # a verdict, which is made when an answer is checked
    assert course.get("hand in two numbers: (bands, rows).")
    message = course.get("{1} pages in, {2} articles out")
    assert message
    assert message.locations == [("notebooks/01_corpus_prep.ipynb", 0)]
    assert message.auto_comments[0].startswith("cell c26; {1}: wiki_report.documents_in")
    keys = [message.context for message in notebooks if message.id]
    assert len(keys) == len(set(keys)) > 400 and "03_tokenizers c03-007" in keys
    assert not any("colab-badge.svg" in str(message.id) for message in notebooks)


def test_a_second_update_changes_no_byte(tmp_path: Path) -> None:
    catalogs.update("ja", tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.[pm]o")}
    assert sorted(path.name for path in before) == ["course.mo", "course.po", "notebooks.po", "pages.po"]
    counts = catalogs.update("ja", tmp_path)
    assert {path: path.read_bytes() for path in before} == before
    assert all(each.missing and not each.translated and not each.fuzzy for each in counts.values())


@pytest.mark.parametrize(
    ("language", "words"), [("en", "'en' is the source"), ("xx", "'xx' is unknown"), ("", "'' is")]
)
def test_a_language_that_cannot_be_translated_to_is_refused(language: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^language: {words}"):
        catalogs.update(language, tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_a_checkout_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_lib.paths.NOTEBOOKS", tmp_path / "notebooks")
    for write in (catalogs.update, editions.build):
        with pytest.raises(CourseError, match="notebooks: not found"):
            write("ja", tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'msgid "{name}: {number:,} distinct"\nmsgstr "{name}は{nombre}"\n',
            r"differ in the fields \{nombre\}, \{number:,\}",
        ),
        ('msgid "broken\n', r"course\.po: "),
    ],
)
def test_a_mistake_in_a_catalogue_is_named(text: str, words: str, tmp_path: Path) -> None:
    path = catalogs.po_file("ja", COURSE, tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf8")
    with pytest.raises(CourseError, match=words):
        catalogs.update("ja", tmp_path)
    assert path.read_text(encoding="utf8") == text
