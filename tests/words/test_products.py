"""What a run writes does not depend on the reader's language; what it prints does."""

from pathlib import Path

import pytest
from course_lib.corpus.config import WebtextConfig, WikipediaConfig
from course_lib.corpus.report import load_report, write_report
from course_lib.corpus.webtext import clean_webtext
from course_lib.corpus.wikipedia import extract
from course_lib.workspace import products as workspace


def build(folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    wiki = extract(workspace.data("jawiki-sample.xml.bz2"), folder / "wiki.jsonl", WikipediaConfig())
    web = clean_webtext(workspace.data("webtext-sample.txt.xz"), folder / "web.jsonl", WebtextConfig())
    for report, name in ((wiki, "wiki.jsonl"), (web, "web.jsonl")):
        write_report(report, folder / name)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_products_are_the_same_in_every_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    english = build(tmp_path / "en")
    monkeypatch.setenv("COURSE_LANG", "ja")
    assert build(tmp_path / "ja") == english
    assert len(english) == 4
    assert "文書" in load_report(tmp_path / "ja" / "wiki.jsonl").table()
