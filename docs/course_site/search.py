"""Search in English and Japanese: Japanese text is divided into words by the course's MeCab.

Sphinx builds the index here, and searches it in the browser, where there is no MeCab. There, split_query.js divides a
Japanese query into words that are in the index. So that both sides agree, and so that a query may be inflected, the
index has words without their inflected ending: 読む and 読んだ are both 読, コンピューター is コンピュータ.
"""

import re
import unicodedata
from pathlib import Path

from course_lib.japanese.mecab import words
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

HIRAGANA = "ぁ-ゖゝゞ"
KATAKANA = "ァ-ヺーヽヾ"
KANJI = "々〆〇㐀-䶿一-鿿豈-﫿"
JAPANESE = re.compile(f"[{HIRAGANA}{KATAKANA}{KANJI}]+")
# Capturing, so that split() returns the runs too.
RUNS = re.compile(f"([{HIRAGANA}{KATAKANA}{KANJI}]+)")
ONLY_HIRAGANA = re.compile(f"[{HIRAGANA}ー]+")
ENDING = re.compile(f"(?<=[^{HIRAGANA}])[{HIRAGANA}]+$")
# A long vowel at the end of a word of four or more characters is often left out (コンピュータ).
LONG_VOWEL = re.compile("(?<=...)ー$")
SPLITTER = Path(__file__).with_name("split_query.js")


class EnglishAndJapanese(SearchEnglish):
    """Sphinx's English search, with Japanese runs divided into words. Replaces its language "en"."""

    js_splitter_code = (
        SPLITTER.read_text(encoding="utf8")
        .replace("JAPANESE", f"{HIRAGANA}{KATAKANA}{KANJI}")
        .replace("HIRAGANA", HIRAGANA)
    )

    def split(self, input: str) -> list[str]:
        """Return the words of a text for the index."""
        found: list[str] = []
        for number, part in enumerate(RUNS.split(unicodedata.normalize("NFKC", input))):
            found += japanese_terms(part) if number % 2 else self._word_re.findall(part)
        return found


class JapaneseEdition(EnglishAndJapanese):
    """The same for Sphinx's language "ja"."""

    lang = "ja"


def japanese_terms(run: str) -> list[str]:
    """Return the terms of a run of Japanese characters for the index.

    These are MeCab's words without inflected endings. Words in hiragana alone are particles and auxiliaries more often
    than not, and are left out. A run in hiragana alone, such as the reading in 予測 (よそく), is a term as a whole.
    """
    found = (
        [run] if ONLY_HIRAGANA.fullmatch(run) else [word for word in words(run) if not ONLY_HIRAGANA.fullmatch(word)]
    )
    # A single kana is a token in some output rather than a word.
    return [stem(word) for word in found if len(word) > 1 or re.match(f"[{KANJI}]", word)]


def stem(word: str) -> str:
    """Return a Japanese word without its inflected ending in hiragana and without a long vowel at its end."""
    return LONG_VOWEL.sub("", ENDING.sub("", word))


def setup(app: Sphinx) -> None:
    """Register the languages."""
    app.add_search_language(EnglishAndJapanese)
    app.add_search_language(JapaneseEdition)
