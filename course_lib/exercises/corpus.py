"""Exercises for chapter 1: a filter, references in wiki markup, the bands of MinHash, and a text to write."""

import re
from functools import cache
from typing import Any

from course_lib.exercises import SEE_FOLDED_CELL, Chapter, Exercise, from_notebook
from course_lib.language.words import tr


def without_references(wikitext: str) -> str:
    """Remove the references from wiki markup."""
    return re.sub(r"<ref[^<>]*/>|<ref[^<>]*>.*?</ref>", "", wikitext, flags=re.S)


def _repetition(text: str) -> float:
    """Return the measure of the library's filter."""
    from course_lib.corpus.filters import measures

    return measures(text)["repetition"]


# Exercise 1.4: characters of a text.
LENGTH = 100
REMOVED_TEXT = (
    "昭和二年四月三日、東京市役所ハ市電全路線ノ運賃改定ヲ発表シタ。新運賃ハ大人七銭、小人四銭デアル。\n"
    "市会議員数名ハ即日反対声明ヲ出シ、新聞各紙モ社説ヲ掲ゲテ再考ヲ求メタ。商店街組合代表ハ翌朝市長室ヲ訪問シ、嘆願書ヲ提出シタ。"
)


# Exercise 1.4: a good text that the filters remove
def _check_removed_text(answer: Any) -> str | None:
    from course_lib.corpus.config import FilterConfig
    from course_lib.corpus.filters import first_failure

    if (length := len("".join(answer.split()))) < LENGTH:
        return tr("the text has {number} characters; at least {least}, please.", number=length, least=LENGTH)
    if not all(line.endswith("。") for line in answer.strip().split("\n")):
        return tr("every line is to end in 。: write whole sentences.")
    if _repetition(answer):
        return tr("a run of ten characters occurs twice: write each sentence once.")
    if first_failure(answer, FilterConfig()) is None:
        return tr("the nine filters keep this text: what do they measure that a good text may have?")
    return None


HASHES, FOUND, COMPARED = 64, 0.98, 0.05


@cache
def _pairs() -> tuple[Any, Any, Any]:
    """Return the Jaccard similarity of each altered pair of the web sample, [pairs], and both texts' signatures."""
    import lzma

    import numpy as np

    from course_lib import paths
    from course_lib.corpus.banding import gram_set, jaccard, spliced
    from course_lib.corpus.config import DedupConfig
    from course_lib.corpus.dedup import signatures

    settings = DedupConfig(num_perm=HASHES, num_bands=1)
    sample = lzma.decompress(paths.data("webtext-sample.txt.xz").read_bytes()).decode(errors="replace")
    one, other = zip(*spliced(sample.strip().split("\n\n"), 20), strict=True)
    grams = [[gram_set(text, settings.ngram) for text in texts] for texts in (one, other)]
    return np.array(list(map(jaccard, *grams))), signatures(one, settings), signatures(other, settings)


# Exercise 1.3: bands and rows
def _check_bands(answer: Any) -> str | None:
    from course_lib.corpus.banding import share_a_band

    bands, rows = answer
    if bands * rows > HASHES:
        return tr("{bands} bands of {rows} rows take more than {hashes} hashes.", bands=bands, rows=rows, hashes=HASHES)
    similarity, one, other = _pairs()
    candidates = share_a_band(one, other, bands, rows)
    found, compared = candidates[similarity >= 0.5].mean(), candidates[similarity < 0.2].mean()
    if found >= FOUND and compared <= COMPARED:
        return None
    few = tr("with fewer rows, or more bands, a band agrees more often")
    advice = few if found < FOUND else tr("with more rows a band agrees less often")
    return tr(
        "{found:.1%} of the similar pairs are found and {compared:.1%} of the different ones compared: {advice}.",
        found=found, compared=compared, advice=advice,
    )  # fmt: skip


# Exercise 1.1: repetition
REPETITION_CASES = (
    (("春の雨が静かに降る。",), _repetition, "a text of at most n characters has 0.0"),
    (("あいうえおかきくけこさしすせそ",), _repetition, "no run occurs twice: 0.0"),
    (("あいうえおかきくけこ" * 2,), _repetition, "the first time does not count: runs, minus different runs"),
    (("ねこ" * 12,), _repetition, "a run that occurs three times occurred before twice"),
    (("あいうえお かきくけこ\n" * 3,), _repetition, "remove the white space first"),
)  # fmt: skip

# Exercise 1.2: without_references
REFERENCE_CASES = (
    (("本文<ref>出典</ref>です。そのまま",), "本文です。そのまま", "a plain reference"),
    (("一<ref>a</ref>二<ref>b</ref>三",), "一二三", "two references: `.*` is greedy and eats 二; use `.*?`"),
    (('一<ref name="a" />二<ref>b</ref>三',), "一二三", "a <ref … /> that closes itself: match it first"),
    (("一<ref>二行に\nわたる</ref>三",), "一三", "a reference over two lines: `.` needs re.DOTALL"),
)  # fmt: skip

CHAPTER = Chapter(
    Exercise(
        "write repetition(text, n=10): the share of runs of n characters that occurred earlier in the text",
        REPETITION_CASES,
        (
            "dense = ''.join(text.split()); the runs are dense[at : at + n] for at in range(len(dense) - n + 1).",
            "A set has each run once: (len(runs) - len(set(runs))) / len(runs).",
        ),
        from_notebook("01_corpus_prep", "repetition_ours"),
        f"{SEE_FOLDED_CELL} The library does the same with hashes of the runs.",
    ),
    Exercise(
        "write a function without_references(wikitext) that removes <ref>…</ref> and <ref … />",
        REFERENCE_CASES,
        (
            "One re.sub whose pattern has two alternatives is enough.",
            "Try the form that closes itself first; `[^<>]*` keeps a match within one tag. In the other form, "
            "`.*?` takes as little as possible up to `</ref>`.",
        ),
        without_references,
        "The self-closing form comes first: otherwise a match goes from its `<ref` to the `</ref>` of a later one.",
    ),
    Exercise(
        f"choose (bands, rows) with at most {HASHES} hashes: find at least {FOUND:.0%} of the pairs from 0.5 on and "
        f"compare at most {COMPARED:.0%} of those below 0.2",
        _check_bands,
        (
            "Average probability(s, bands, rows) over s = similarity[similarity >= 0.5], then over those below 0.2.",
            "More rows make the curve start later, more bands make it start earlier. Begin with two rows and as many "
            "bands as the hashes allow, then add a row.",
        ),
        (21, 3),
        "The curve is steep near (1/bands)^(1/rows), here 0.36. With 64 hashes only three rows keep both promises.",
    ),
    Exercise(
        f"find a good text of at least {LENGTH} characters that the filters remove",
        _check_removed_text,
        (
            "Which of the nine measures can be high or low in prose? Think of old spelling or foreign names.",
            "Katakana in place of hiragana, as before 1946; or prices and dates in every sentence.",
        ),
        REMOVED_TEXT,
        "Filters judge by counting. Before 1946, official prose was written in kanji and katakana: little_hiragana.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution
