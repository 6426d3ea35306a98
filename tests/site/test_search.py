"""Words for the search index; tests/site/test_site.py searches them in a browser."""

import pytest

from course_site.search import EnglishAndJapanese


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("次の単語を予測する。", ["次", "単語", "予測"]),
        ("本を読んだ", ["本", "読"]),
        ("コンピューターで計算", ["コンピュータ", "計算"]),
        ("ﾃｷｽﾄ", ["テキスト"]),
        ("の を だ", []),
        ("GPT-2のトークン split_sentences", ["GPT", "2", "トークン", "split_sentences"]),
    ],
)
def test_words_for_the_index(text: str, terms: list[str]) -> None:
    assert EnglishAndJapanese({}).split(text) == terms


def test_english_words_are_stemmed_and_japanese_ones_are_not() -> None:
    language = EnglishAndJapanese({})
    assert [language.stem(word) for word in ("prefixes", "予測", "コンピュータ")] == ["prefix", "予測", "コンピュータ"]
