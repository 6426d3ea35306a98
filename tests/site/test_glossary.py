"""The order of terms in the Japanese glossary; tests/site/test_site.py reads the page."""

import pytest

from course_site.glossary import TERM, Entry, order


@pytest.mark.parametrize(
    "readings",
    [
        ["アダプタ", "いち", "エーエスピー", "エスジーラング", "おもみ"],
        ["データ", "テキスト", "デコード", "バッチ", "パディング", "ビーム"],
    ],
)
def test_voiced_small_and_long_kana_stand_with_plain_ones(readings: list[str]) -> None:
    assert sorted(readings, key=order) == readings


@pytest.mark.parametrize(
    ("line", "term", "reading", "row"),
    [
        ("活性値（かっせいち）", "活性値", "かっせいち", "カ行"),
        ("AdamW（アダムダブリュー）", "AdamW", "アダムダブリュー", "ア行"),
        ("ワンホットベクトル", "ワンホットベクトル", None, "ワ行"),
    ],
)
def test_a_term_with_its_reading(line: str, term: str, reading: str | None, row: str) -> None:
    found = TERM.fullmatch(line)
    assert found and (found["term"], found["reading"]) == (term, reading)
    assert Entry(order(reading or term), term, "id").row == row
