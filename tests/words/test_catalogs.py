"""The catalogues for translators, and what becomes of translations when the English changes."""

from gettext import GNUTranslations
from pathlib import Path

import pytest
from babel.messages.pofile import write_po
from course_lib import cli
from course_lib.errors import CourseError, UsageError
from course_lib.language import words

from course_authors import catalogs, editions
from course_authors.catalogs import COURSE, NOTEBOOKS, PAGES, Entry

ENGLISH = {
    NOTEBOOKS: [Entry("Rain falls.", Path("a"), "01 c1"), Entry("Snow", Path("a"), "01 c2")],
    PAGES: [Entry("A page of text", Path("b"))],
    COURSE: [Entry("{n} documents were removed", Path("c"))],
}


@pytest.fixture
def english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Entry]]:
    """English texts that a test may change, and empty catalogues in another folder."""
    monkeypatch.setattr(catalogs, "LOCALE", tmp_path)
    monkeypatch.setattr(catalogs, "REPOSITORY", Path())
    monkeypatch.setattr(words, "CATALOGUES", tmp_path)
    entries = {domain: [*found] for domain, found in ENGLISH.items()}
    monkeypatch.setattr(catalogs, "TEXTS", {domain: (lambda domain=domain: entries[domain]) for domain in entries})
    return entries


def translate(domain: str, *texts: str) -> None:
    catalog = catalogs.current("ja", domain)
    for message, text in zip([each for each in catalog if each.id], texts, strict=True):
        message.string = text
    with catalogs.po_file("ja", domain).open("wb") as file:
        write_po(file, catalog)


def test_the_translation_of_a_changed_text_is_kept_shown_listed_and_accepted(english: dict[str, list[Entry]]) -> None:
    catalogs.update("ja")
    assert len(catalogs.open_texts("ja")) == 4
    translate(NOTEBOOKS, "雨が降る。", "雪")
    translate(PAGES, "ページ")
    translate(COURSE, "{n}件の文書を除いた")
    assert catalogs.open_texts("ja") == []
    english[NOTEBOOKS] = [Entry("Snow", Path("a"), "01 c2"), Entry("It pours!", Path("a"), "01 c1")]
    english[COURSE] = [Entry("{n} documents are removed", Path("c"))]
    for _ in range(2):
        catalogs.update("ja")
        cell, message = catalogs.open_texts("ja")
        assert "fuzzy: 01 c1: It pours!" in cell and "fuzzy" in message
    assert catalogs.translations("ja", NOTEBOOKS) == {("01 c2", "Snow"): "雪", ("01 c1", "It pours!"): "雨が降る。"}
    with catalogs.mo_file("ja").open("rb") as file:
        assert GNUTranslations(file).gettext("{n} documents are removed") == "{n}件の文書を除いた"
    for accepted in ("01 c1", message.split(": ")[2]):
        catalogs.update("ja", accepted)
    assert catalogs.open_texts("ja") == []
    with pytest.raises(UsageError, match="--accept"):
        catalogs.update("ja", "01 c1")


def test_a_changed_literal_of_a_cell_keeps_its_own_translation(english: dict[str, list[Entry]]) -> None:
    english[NOTEBOOKS] = [Entry(text, Path("a"), "01 c5") for text in ("the shortest:", "{n} bytes", "training")]
    catalogs.update("ja")
    translate(NOTEBOOKS, "最短：", "{n}バイト", "学習")
    english[NOTEBOOKS][0] = Entry("the shortest one:", Path("a"), "01 c5")
    found = catalogs.translations("ja", NOTEBOOKS)
    assert found["01 c5", "the shortest one:"] == "最短：" and found["01 c5", "training"] == "学習"
    assert sum("fuzzy" in line for line in catalogs.open_texts("ja")) == 1


@pytest.mark.parametrize(
    ("changed", "translation", "expected"),
    [
        ("98 % of 256 texts in 120 s", "2分以内に256の文章の98%", None),  # where is 111?
        ("98 % of 256 texts in 120 s", "111秒、256の文章の98%", "120秒、256の文章の98%"),
        ("98 % of 1,024 texts in 9.5 s", "111秒、256の文章の98%", "9.5秒、1,024の文章の98%"),
        ("98 % of 256 tales in 120 s", "111秒、256の文章の98%", None),
    ],
)
def test_a_changed_number_changes_in_the_translation_too(changed: str, translation: str, expected: str | None) -> None:
    assert catalogs.renumbered("98 % of 256 texts in 111 s", changed, translation) == expected


def test_one_number_that_became_two_needs_a_translator() -> None:
    assert catalogs.renumbered("1 and 1 of 2", "3 and 4 of 2", "2のうち1と1") is None
    assert catalogs.renumbered("2 of 2", "3 of 3", "2のうち2") == "3のうち3"
    assert (
        catalogs.renumbered(
            "at 8:05, 8 minutes of 8, in pairs", "at 8:06, 9 minutes of 8, in pairs", "8:05、8分のうち8分、2人組"
        )
        == "8:06、9分のうち8分、2人組"
    )


def test_the_most_similar_texts_are_paired_first() -> None:
    rows = ["| 09:10 | 8 | Exercise 3.3 |", "| 09:18 | 8 | Exercise 3.4 |"]
    new = ["| 09:12 | 8 | Exercise 3.4 |", "| 09:05 | 7 | Exercise 3.3 |"]
    assert catalogs.closest(new, rows, 0.75) == {new[1]: rows[0], new[0]: rows[1]}


def test_a_changed_number_is_not_fuzzy(english: dict[str, list[Entry]]) -> None:
    english[NOTEBOOKS] = [Entry("The loss is 1.97 nats.", Path("a"), "01 c1")]
    catalogs.update("ja")
    translate(NOTEBOOKS, "損失は1.97ナットです。")
    english[NOTEBOOKS] = [Entry("The loss is 2.01 nats.", Path("a"), "01 c1")]
    assert catalogs.translations("ja", NOTEBOOKS) == {("01 c1", "The loss is 2.01 nats."): "損失は2.01ナットです。"}
    assert not [line for line in catalogs.open_texts("ja") if line.startswith("notebooks")]


@pytest.mark.rehearse
def test_a_second_update_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "LOCALE", tmp_path)
    monkeypatch.setattr(words, "CATALOGUES", tmp_path)
    catalogs.update("ja")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.?o")}
    assert sorted(path.name for path in before) == ["course.mo", "course.po", "notebooks.po", "pages.po"]
    catalogs.update("ja")
    assert {path: path.read_bytes() for path in before} == before


def test_the_compiled_catalogue_is_behind_until_the_next_update(
    english: dict[str, list[Entry]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editions, "behind", lambda language: [])
    english[NOTEBOOKS], english[PAGES] = [], []
    catalogs.update("ja")
    assert catalogs.is_compiled("ja")
    translate(COURSE, "{n}件の文書を除いた")
    assert not catalogs.is_compiled("ja")
    assert cli._main(["words", "ja", "--check", "--release"]) == 1
    assert "course.mo: behind course.po; `course words ja` compiles it\n" in capsys.readouterr().out
    assert cli._main(["words", "ja"]) == 0 and cli._main(["words", "ja", "--check", "--release"]) == 0


def test_a_fuzzy_translation_with_other_fields_is_not_compiled(english: dict[str, list[Entry]]) -> None:
    catalogs.update("ja")
    translate(COURSE, "{n}件の文書を除いた")
    english[COURSE] = [Entry("{count} documents were removed", Path("c"))]
    catalogs.update("ja")
    assert "fuzzy" in next(line for line in catalogs.open_texts("ja") if line.startswith("course.po"))
    with catalogs.mo_file("ja").open("rb") as file:
        assert GNUTranslations(file).gettext("{count} documents were removed") == "{count} documents were removed"
    assert catalogs.is_compiled("ja")


@pytest.mark.parametrize("language", ["en", "xx"])
def test_a_language_that_cannot_be_translated_to_is_refused(language: str) -> None:
    with pytest.raises(UsageError, match="^language: "):
        catalogs.update(language)


@pytest.mark.parametrize("text", ['msgid "{n} documents were removed"\nmsgstr "{m}件"\n', 'msgid "broken\n'])
@pytest.mark.usefixtures("english")
def test_a_mistake_in_a_catalogue_is_named(text: str) -> None:
    catalogs.update("ja")
    catalogs.po_file("ja", COURSE).write_text(text, encoding="utf8")
    with pytest.raises(CourseError, match=r"course\.po: "):
        catalogs.update("ja")


def test_only_the_release_check_fails_on_open_texts(
    english: dict[str, list[Entry]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editions, "behind", lambda language: [])
    english[NOTEBOOKS] += [Entry(f"Rain {number}", Path("a"), f"01 c{number}") for number in range(10, 30)]
    catalogs.update("ja")
    capsys.readouterr()
    for arguments, code in ((["--check"], 0), (["--check", "--release"], 1)):
        assert cli._main(["words", "ja", *arguments]) == code
        # A line for each notebook, each page and the library, and the sum; not one for each text.
        lines = "".join(capsys.readouterr()).splitlines()
        assert lines[:3] == [f"{part} texts to translate" for part in ("a: 22", "b: 1", "course_lib: 1")]
        assert len(lines) == 4 and "ja: texts to translate: 24, files behind the English: 0" in lines[3]
    assert cli._main(["words", "ja", "--check", "--texts"]) == 0
    listed = capsys.readouterr().out
    assert "01 c1: Rain falls." in listed and len(listed.splitlines()) == 24 + 4
    english[NOTEBOOKS] = english[NOTEBOOKS][:2]
    catalogs.update("ja")
    translate(NOTEBOOKS, "雨", "雪")
    english[PAGES], english[COURSE] = [], []
    assert cli._main(["words", "ja", "--check", "--release"]) == 0
