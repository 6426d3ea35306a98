"""Exercises for chapter 3: BPE merges, characters per token, and the size of the alphabet."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from course_lib.exercises import Chapter, Exercise
from course_lib.language.words import tr


def apply_merges(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """Apply merges to a word in order and return its symbols."""
    symbols = list(word)
    for left, right in merges:
        at = 0
        while at < len(symbols) - 1:
            if (symbols[at], symbols[at + 1]) == (left, right):
                symbols[at : at + 2] = [left + right]
            at += 1
    return symbols


def characters_per_token(texts: list[str], encode: "Callable[[str], list[int]]") -> float:
    """Return the number of characters per token over all texts combined."""
    return sum(map(len, texts)) / sum(len(encode(text)) for text in texts)


def pairs(text: str) -> list[int]:
    """Encode a text for the check, with one token per two characters."""
    return [0] * ((len(text) + 1) // 2)


ENTRIES, GOAL = 3000, 1.20


@cache
def _texts() -> list[str]:
    """Return documents to train on, the same in every profile, so that the same answers are right."""
    from course_lib import paths
    from course_lib.corpus.webtext import clean_webtext
    from course_lib.corpus.wikipedia import extract
    from course_lib.documents import read_texts

    with TemporaryDirectory() as name:
        articles, web = Path(name) / "articles.jsonl", Path(name) / "web.jsonl"
        extract(paths.data("jawiki-sample.xml.bz2"), articles)
        clean_webtext(paths.data("webtext-sample.txt.xz"), web)
        return [*read_texts(articles), *read_texts(web)]


@cache
def outcome(segmented: bool, limit_alphabet: int) -> float:
    """Return the characters per token of a BPE tokenizer of 3,000 entries on unseen documents."""
    from course_lib.subword.config import BpeConfig
    from course_lib.subword.sweep import train_on
    from course_lib.subword.unseen import unseen_texts

    codec = train_on(_texts(), BpeConfig(vocab_size=ENTRIES, limit_alphabet=limit_alphabet), segmented)
    return characters_per_token(unseen_texts(), codec.encode)


def _check_alphabet(answer: Any) -> str | None:
    segmented, size = answer
    if segmented not in (True, False):
        return tr("hand in two values, True or False first: (segmented, limit_alphabet).")
    found = outcome(bool(segmented), int(size))
    if found >= GOAL:
        return None
    if size < 1200:
        advice = tr("many characters outside the alphabet cost up to four byte tokens each; keep more")
    elif size > 1900:
        advice = tr("so many single characters leave few entries for pairs; keep fewer")
    else:
        advice = tr("the alphabet has a good size, but no token may cross a word boundary; change that")
    shares = {"found": found, "goal": GOAL, "advice": advice}
    return tr("{found:.3f} characters per token on unseen text, {goal:.2f} are wanted: {advice}.", **shares)


CHAPTER = Chapter(
    Exercise(
        "write a function apply_merges(word, merges) that gives the word's symbols after all merges, in order",
        (
            (("大学生", [("大", "学")]), "the answer is a list of symbols, in which 大 and 学 are one"),
            (("ababc", [("a", "b")]), "a merge applies wherever the pair occurs, not once"),
            (("abc", [("b", "c"), ("a", "b")]), "the order of the merges decides: the first uses up b"),
            (("aaa", [("a", "a")]), "go from left to right, and do not use a symbol twice"),
        ),
        (
            "Begin with list(word). For each merge, go over the symbols with an index.",
            "Where two neighbouring symbols are the pair, replace both by one: symbols[at:at + 2] = [left + right].",
        ),
        apply_merges,
        "Encoding applies the merges in the order in which training learned them: the most frequent pairs come first.",
    ),
    Exercise(
        "write a function my_ratio(texts, encode): characters per token over all texts; "
        "encode(text) gives a list of ids",
        (
            ((["aaaa"], pairs), "len(text) over len(encode(text))"),
            ((["ああああ"], pairs), "count characters with len(text), not bytes"),
            ((["あ" * 9, "い"], pairs), "add up over all texts, then divide once: a mean of means favours short texts"),
        ),
        ("Two sums and one division are enough.", "Add up over all texts first, then divide once."),
        characters_per_token,
        "With the sums first, every token has the same weight. In a mean of the texts' ratios, a line of one word "
        "would weigh as much as a page.",
    ),
    Exercise(
        f"find (segmented, limit_alphabet) with which BPE of {ENTRIES} entries reaches {GOAL:.2f} characters per token "
        "on unseen text",
        _check_alphabet,
        (
            "Of the entries that are not fixed, which are worth most: more single characters, or more pairs?",
            "Try alphabets of 500, 1000, 1500, 2000 and 2500 and draw the curve: it has a maximum.",
            "At the best alphabet, compare segmented with raw text.",
        ),
        (False, 1500),
        "Too few characters, and common kanji cost three byte tokens each; too many, and characters that occur once "
        "take the entries of words. The best alphabet depends on the size of the vocabulary.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution
