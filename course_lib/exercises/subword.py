"""Exercises of chapter 3."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from course_lib.exercises import Chapter, Exercise, run_cases


def best_pair(words: dict[str, int]) -> tuple[str, str]:
    """The pair of neighbouring characters that occurs most often in words with their frequencies: BPE's first merge."""
    pairs: Counter[tuple[str, str]] = Counter()
    for word, frequency in words.items():
        for left, right in pairwise(word):
            pairs[left, right] += frequency
    return max(pairs, key=lambda pair: (pairs[pair], pair))


def _check_pair(answer: Any) -> str | None:
    return run_cases(
        answer,
        [
            (({"ます": 5, "です": 3},), ("ま", "す"), "answer with the pair as a tuple"),
            (
                ({"勉強": 1, "学習": 9, "学校": 2},),
                ("学", "習"),
                "a word that occurs 9 times brings each of its pairs 9 times",
            ),
            (({"aab": 2, "xyxyxy": 1},), ("x", "y"), "a pair can come several times within a word: xy three times"),
            (
                ({"abc": 3, "bcd": 4, "ab": 1},),
                ("b", "c"),
                "add up a pair's count over all words: bc is in two of them",
            ),
        ],
    )


def characters_per_token(texts: list[str], encode: Callable[[str], list[int]]) -> float:
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


def is_lossless(codec: Any, text: str, normalize: Callable[[str], str]) -> bool:
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
        "write a function best_pair(words) for {word: frequency}: the pair of characters BPE merges first, as a tuple",
        _check_pair,
        (
            "zip(word, word[1:]) gives the neighbouring pairs of a word.",
            "Count with a Counter, adding the word's frequency for each pair.",
        ),
        best_pair,
        "BPE is this step repeated: merge the pair everywhere, count again.",
    ),
    Exercise(
        "write a function characters_per_token(texts, encode), where encode(text) gives a list of ids",
        _check_ratio,
        ("Two sums and one division.", "sum(map(len, texts)) / sum(len(encode(text)) for text in texts)"),
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
