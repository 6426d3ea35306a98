"""Exercises for chapter 1: references in wiki markup, the share of hiragana, and the bands of MinHash."""

import re
from functools import cache
from typing import Any

from course_lib.exercises import Chapter, Exercise
from course_lib.language.words import tr


def without_references(wikitext: str) -> str:
    """Remove the references from wiki markup."""
    return re.sub(r"<ref[^<>]*/>|<ref[^<>]*>.*?</ref>", "", wikitext, flags=re.S)


def hiragana_share(text: str) -> float:
    """Return the share (0 to 1) of hiragana among the characters that are not white space."""
    dense = "".join(text.split())
    return sum("ぁ" <= char <= "ゟ" for char in dense) / len(dense) if dense else 0.0


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


CHAPTER = Chapter(
    Exercise(
        "write a function without_references(wikitext) that removes <ref>…</ref> and <ref … />",
        (
            (("本文<ref>出典</ref>です。そのまま",), "a plain reference"),
            (("一<ref>a</ref>二<ref>b</ref>三",), "two references: `.*` is greedy and eats 二; use `.*?`"),
            (('一<ref name="a" />二<ref>b</ref>三',), "a <ref … /> that closes itself: match it first"),
            (("一<ref>二行に\nわたる</ref>三",), "a reference over two lines: `.` needs re.DOTALL"),
        ),
        (
            "One re.sub whose pattern has two alternatives is enough.",
            "Try the form that closes itself first; `[^<>]*` keeps a match within one tag. In the other form, "
            "`.*?` takes as little as possible up to `</ref>`.",
        ),
        without_references,
        "The self-closing form comes first: otherwise a match goes from its `<ref` to the `</ref>` of a later one.",
    ),
    Exercise(
        "write a function hiragana_share(text): hiragana among all characters that are not white space",
        (
            (("漢字とかな",), "divide the number of hiragana by that of all characters; no percentage"),
            (("カタカナ",), "katakana are not hiragana: the range is ぁ to ゟ"),
            (("か な\n漢 字",), "white space counts neither in the numerator nor in the denominator"),
            (("",), "an empty text has no characters; return 0.0 to avoid a division by zero"),
        ),
        (
            "Remove the white space with ''.join(text.split()).",
            "'ぁ' <= char <= 'ゟ' is True for hiragana; True counts as 1 in sum().",
        ),
        hiragana_share,
        "Prose needs hiragana for its grammar. Keyword lists and menus have kanji and katakana, but few hiragana.",
    ),
    Exercise(
        f"choose (bands, rows) with at most {HASHES} hashes: find at least {FOUND:.0%} of the pairs from 0.5 on and "
        f"compare at most {COMPARED:.0%} of those below 0.2",
        _check_bands,
        (
            "Compute 1 - (1 - s^rows)^bands at s = 0.5 and at s = 0.2 for some choices.",
            "More rows make the curve start later, more bands make it start earlier. Begin with two rows and as many "
            "bands as the hashes allow, then add a row.",
        ),
        (21, 3),
        "The curve is steep near (1/bands)^(1/rows), here 0.36. With 64 hashes only three rows keep both promises.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution
