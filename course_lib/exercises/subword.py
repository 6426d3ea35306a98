"""Exercises of chapter 3."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
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
    cases: list[tuple[tuple[Any, ...], Any]] = [
        (({"ます": 5, "です": 3},), ("ま", "す")),
        (({"勉強": 1, "学習": 9, "学校": 2},), ("学", "習")),
        (({"aab": 2, "xyxyxy": 1},), ("x", "y")),
        (({"abc": 3, "bcd": 4, "ab": 1},), ("b", "c")),
    ]

    def explain(arguments: Any, wanted: Any, given: Any) -> str:
        reasons = {
            "勉強": "a word that occurs 9 times brings each of its pairs 9 times",
            "aab": "a pair can come several times within a word: xy three times",
            "abc": "add up a pair's count over all words: bc is in two of them",
        }
        return f"For {arguments[0]} expected {wanted}, got {given!r}: {reasons.get(next(iter(arguments[0])), 'answer with the pair as a tuple')}."

    return run_cases(answer, cases, explain)


def characters_per_token(texts: list[str], encode: Callable[[str], list[int]]) -> float:
    """Characters of all texts over tokens of all texts."""
    return sum(map(len, texts)) / sum(len(encode(text)) for text in texts)


def _check_ratio(answer: Any) -> str | None:
    pairs: Callable[[str], list[int]] = lambda text: [0] * ((len(text) + 1) // 2)  # noqa: E731  two characters a token
    single: Callable[[str], list[int]] = lambda text: [0] * len(text)  # noqa: E731
    cases: list[tuple[tuple[Any, ...], Any]] = [
        ((["ああああ"], pairs), 2.0),
        ((["ああああ", "いい"], single), 1.0),
        ((["あ" * 9, "い"], pairs), 10 / 6),
    ]

    def explain(arguments: Any, wanted: Any, given: Any) -> str:
        upside = isinstance(given, float | int) and given and abs(1 / given - wanted) < 1e-9
        if upside:
            reason = "that is tokens per character: turn the fraction around"
        elif len(arguments[0]) > 1:
            reason = "add up characters and tokens over all texts, then divide once; a mean of means lets short texts weigh too much"
        else:
            reason = "len(text) over len(encode(text))"
        return f"For {arguments[0]} expected {wanted:.3f}, got {given!r}: {reason}."

    return run_cases(answer, cases, explain)


def is_lossless(codec: Any, text: str, normalize: Callable[[str], str]) -> bool:
    """Whether the codec gives the normalized text back."""
    return bool(codec.decode(codec.encode(text)) == normalize(text))


def _check_lossless(answer: Any) -> str | None:
    good = SimpleNamespace(encode=lambda text: list(text.lower()), decode="".join)
    spaced = SimpleNamespace(encode=lambda text: list(text.lower()), decode=" ".join)
    cases: list[tuple[tuple[Any, ...], Any]] = [
        ((good, "abc", str.lower), True),
        ((good, "ABC", str.lower), True),
        ((spaced, "abc", str.lower), False),
        ((spaced, "a", str.lower), True),
    ]

    def explain(arguments: Any, wanted: Any, given: Any) -> str:
        if arguments[0] is good:
            reason = "compare with normalize(text): what normalization changed on purpose is not lost by the tokenizer"
        else:
            reason = "this codec puts spaces between tokens, so 'abc' comes back as 'a b c'; compare the whole texts, not their lengths or letters"
        return f"For the text {arguments[1]!r} expected {wanted}, got {given!r}: {reason}."

    return run_cases(answer, cases, explain)


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
