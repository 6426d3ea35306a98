"""What a run writes does not depend on the reader's language; what it prints does."""

from pathlib import Path

import pytest
from course_lib.corpus.config import WebtextConfig, WikipediaConfig
from course_lib.corpus.report import load_report, write_report
from course_lib.corpus.webtext import clean_webtext
from course_lib.corpus.wikipedia import extract
from course_lib.workspace import products as workspace

from tests.words import pseudo


def build(folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    wiki = extract(workspace.data("jawiki-sample.xml.bz2"), folder / "wiki.jsonl", WikipediaConfig())
    web = clean_webtext(workspace.data("webtext-sample.txt.xz"), folder / "web.jsonl", WebtextConfig())
    for report, name in ((wiki, "wiki.jsonl"), (web, "web.jsonl")):
        write_report(report, folder / name)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_products_are_the_same_in_every_language(
    catalogues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    english = build(tmp_path / "en")
    tables = [load_report(tmp_path / "en" / name).table() for name in ("wiki.jsonl", "web.jsonl")]
    monkeypatch.setenv("COURSE_LOCALE", str(catalogues))
    monkeypatch.setenv("COURSE_LANG", pseudo.LANGUAGE)
    assert build(tmp_path / "eo") == english
    assert len(english) == 4
    for name, table in zip(("wiki.jsonl", "web.jsonl"), tables, strict=True):
        shown = load_report(tmp_path / "eo" / name).table()
        assert "dóçúméñts" in shown and "dóçúméñts" not in table and "documents" not in shown.split("\n")[0]
