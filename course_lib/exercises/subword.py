"""Exercises of chapter 3."""

from collections.abc import Callable
from typing import Any

from course_lib.exercises import Chapter, Exercise, run_cases


def apply_merges(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """The symbols of a word after all merges, applied in order."""
    symbols = list(word)
    for left, right in merges:
        at = 0
        while at < len(symbols) - 1:
            if (symbols[at], symbols[at + 1]) == (left, right):
                symbols[at : at + 2] = [left + right]
            at += 1
    return symbols


def _check_merges(answer: Any) -> str | None:
    return run_cases(
        answer,
        [
            (("大学生", [("大", "学")]), ["大学", "生"], "merge the pair where it stands, keep the rest"),
            (("雨", []), ["雨"], "without merges the characters stay"),
            (("ababc", [("a", "b")]), ["ab", "ab", "c"], "a merge applies wherever the pair stands, not once"),
            (("abab", [("a", "b"), ("ab", "ab")]), ["abab"], "a merge can join what an earlier one made"),
            (
                ("abc", [("b", "c"), ("a", "b")]),
                ["a", "bc"],
                "the order of the merges decides: b is used up by the first",
            ),
            (("aaa", [("a", "a")]), ["aa", "a"], "go from left to right, and do not use a symbol twice"),
        ],
    )


def characters_per_token(texts: list[str], encode: "Callable[[str], list[int]]") -> float:
    """Characters of all texts over tokens of all texts."""
    return sum(map(len, texts)) / sum(len(encode(text)) for text in texts)


def _pairs(text: str) -> list[int]:
    """An encoder for the checker: two characters a token."""
    return [0] * ((len(text) + 1) // 2)


def _check_ratio(answer: Any) -> str | None:
    if callable(answer) and answer(["ああああ"], _pairs) == 0.5:
        return "For one text of 4 characters in 2 tokens you gave 0.5: that is tokens per character, turn the fraction around."
    once = (
        "add up characters and tokens over all texts, then divide once; a mean of means lets short texts weigh too much"
    )
    cases = [
        ((["ああああ"], _pairs), 2.0, "len(text) over len(encode(text))"),
        ((["ああああ", "いい"], list), 1.0, once),
        ((["あ" * 9, "い"], _pairs), 10 / 6, once),
    ]
    return run_cases(answer, cases)


def is_lossless(codec: "Any", text: str, normalize: "Callable[[str], str]") -> bool:
    """Whether the codec gives the normalized text back."""
    return bool(codec.decode(codec.encode(text)) == normalize(text))


class _Toy:
    """A codec for the checker: letters as tokens, lower-cased, put together with or without spaces."""

    def __init__(self, between: str) -> None:
        self.encode = lambda text: list(text.lower())
        self.decode = between.join

    def __repr__(self) -> str:
        return "codec"


def _check_lossless(answer: Any) -> str | None:
    good, spaced = _Toy(""), _Toy(" ")
    meant = "compare with normalize(text): what normalization changed on purpose is not lost by the tokenizer"
    apart = "this codec puts spaces between tokens, so 'abc' comes back as 'a b c'; compare whole texts, not lengths or letters"
    cases = [
        ((good, "abc", str.lower), True, meant),
        ((good, "ABC", str.lower), True, meant),
        ((spaced, "abc", str.lower), False, apart),
        ((spaced, "a", str.lower), True, apart),
    ]
    return run_cases(answer, cases)


CHAPTER = Chapter(
    Exercise(
        "write a function apply_merges(word, merges) that gives the word's symbols after all merges, in order",
        _check_merges,
        (
            "Begin with list(word). For each merge walk over the symbols with an index.",
            "Where two neighbours are the pair, replace both by one: symbols[at:at + 2] = [left + right].",
        ),
        apply_merges,
        "Encoding repeats what training learned: the first merges were the most frequent, so they go first.",
    ),
    Exercise(
        "write a function my_ratio(texts, encode): characters per token over all texts; encode(text) gives a list of ids",
        _check_ratio,
        ("Two sums and one division.", "Add up over all texts first, then divide once."),
        characters_per_token,
        "Summing first weighs every token the same; a mean of each text's ratio would let one-word lines count like pages.",
    ),
    Exercise(
        "write a function is_lossless(codec, text, normalize): does the codec give the normalized text back?",
        _check_lossless,
        ("codec.decode(codec.encode(text)) is what comes back.", "It should equal normalize(text), not text."),
        is_lossless,
        "Normalization may change a text (it is meant to); the tokenizer after it may not.",
    ),
)
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution
