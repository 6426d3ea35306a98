"""Messages in the reader's language: what is translated, what stays English, and what is refused."""

import io
from pathlib import Path

import pytest
from babel.messages import Catalog
from babel.messages.mofile import write_mo
from course_lib.errors import CourseError, UsageError
from course_lib.language import words
from course_lib.language.words import fill, heading, keyed, mark, printed, shown, tr
from course_lib.progress import progress

MESSAGES = {
    "documents": "文書",
    "training": "学習用",
    "{number} documents below {limit:.2f}": "{limit:.2f}未満の文書は{number}件",
    "{1} of {name}": "{name}のうち{1}",
    "{number} tokens": "トークン",  # the field is missing
    "{number} words": "{nombre}語",  # the field is misspelled
    "searching": "検索中",
    "s": "秒",
}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, messages: dict[str, str], language: str = "ja") -> None:
    catalog = Catalog(locale=language)
    for text, translation in messages.items():
        catalog.add(text, translation)
    catalog.add("Count again.", "もう一度。", context="corpus 1 hint 1")
    written = io.BytesIO()
    write_mo(written, catalog)
    path = folder / language / "LC_MESSAGES" / "course.mo"
    path.parent.mkdir(parents=True)
    path.write_bytes(written.getvalue())
    monkeypatch.setenv("COURSE_LOCALE", str(folder))
    monkeypatch.setenv("COURSE_LANG", language)


@pytest.fixture
def japanese(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, MESSAGES)


@pytest.mark.parametrize("language", [None, "", "en"])
def test_english_is_the_default(language: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COURSE_LANG", raising=False)
    if language is not None:
        monkeypatch.setenv("COURSE_LANG", language)
    assert words.language() == "en"
    assert tr("documents") == "documents"
    assert tr("{number:,} documents", number=1234) == "1,234 documents"
    assert heading("documents", ">12") == "   documents"
    assert mark("documents") == "documents"


@pytest.mark.usefixtures("japanese")
def test_a_message_is_translated_with_its_fields() -> None:
    assert tr("documents") == "文書"
    assert tr("{number} documents below {limit:.2f}", number=3, limit=0.5) == "0.50未満の文書は3件"
    assert fill("{1} of {name}", {"1": "3", "name": "{1}"}) == "{1}のうち3"


@pytest.mark.usefixtures("japanese")
def test_what_is_not_in_the_catalogue_stays_english() -> None:
    assert tr("sentences") == "sentences"
    # The translation of the empty message is the catalogue's header.
    assert tr("") == "" and keyed("corpus 1 hint 1", "") == ""


@pytest.mark.usefixtures("japanese")
def test_a_translation_with_other_fields_is_not_used() -> None:
    assert tr("{number} tokens", number=3) == "3 tokens"
    assert tr("{number} words", number=3) == "3 words"


@pytest.mark.usefixtures("japanese")
def test_a_text_under_a_key_needs_the_key_and_the_text() -> None:
    assert keyed("corpus 1 hint 1", "Count again.") == "もう一度。"
    assert keyed("corpus 1 hint 2", "Count again.") == "Count again."
    assert keyed("corpus 1 hint 1", "Count once more.") == "Count once more."


@pytest.mark.usefixtures("japanese")
def test_names_are_translated_where_they_are_shown() -> None:
    assert shown("training") == "学習用"
    assert shown(["training", 3, ("documents",)]) == "['学習用', 3, ('文書',)]"
    assert shown({"training": 3}) == "{'学習用': 3}"
    # A text of one or two letters is rather a token of a text, or a unit.
    assert tr("s") == "秒" and shown(["s"]) == "['s']" and printed("s") == "s"
    assert printed("training") == "学習用"
    # Quoted with !r, a text is data.
    assert shown("training", "r") == "'training'"
    assert shown(1234.5, "", ",.2f") == "1,234.50"


@pytest.mark.usefixtures("japanese")
@pytest.mark.parametrize(
    ("name", "spec", "text"),
    [
        ("training", "<10", "学習用    "),
        ("training", ">10", "    学習用"),
        ("training", "　<4", "学習用"),
        ("training", "<3", "学習用"),
        ("unseen", "<10", "unseen    "),
    ],
)
def test_a_translated_name_takes_the_columns_of_its_field(name: str, spec: str, text: str) -> None:
    assert shown(name, "", spec) == text


@pytest.mark.usefixtures("japanese")
def test_a_progress_bar_is_in_the_readers_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert progress(1, "documents", "searching").desc == "検索中"


def test_with_an_empty_catalogue_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, {})
    assert tr("documents") == "documents" and tr("{number} of 3", number=1) == "1 of 3"
    assert fill("{1} of {name}", {"1": "3", "name": "x"}) == "3 of x"
    assert shown(["training"], "", "") == "['training']" and shown("a", "", "<3") == "a  "


@pytest.mark.parametrize("language", ["de", "../ja", "JA"])
@pytest.mark.usefixtures("japanese")
def test_a_language_without_a_catalogue_is_refused(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_LANG", language)
    with pytest.raises(UsageError, match=rf"^COURSE_LANG: '{language}' has no catalogue; allowed: en, ja$"):
        tr("documents")


def test_a_damaged_catalogue_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, {})
    path = tmp_path / "ja" / "LC_MESSAGES" / "course.mo"
    path.write_bytes(b"not a catalogue")
    with pytest.raises(CourseError, match=r"course\.mo: not a compiled catalogue .*; run `course words ja`"):
        tr("documents")


def test_japanese_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_LANG", "ja")
    words.require_language()
