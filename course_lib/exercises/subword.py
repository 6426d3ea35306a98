"""Exercises for chapter 3: BPE merges, characters per token, and lossless tokenizers."""

from collections.abc import Callable
from typing import Any

from course_lib.exercises import Case, Chapter, Exercise, run_cases


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


def _check_ratio(answer: Any) -> str | None:
    once = (
        "add up characters and tokens over all texts, then divide once; "
        "a mean of means gives short texts too much weight"
    )
    cases: list[Case] = [
        (
            (["ああああ"], pairs),
            2.0,
            "len(text) over len(encode(text))",
            (
                (0.5, "that is tokens per character, turn the fraction around"),
                (4.0, "that is characters per text; divide by the number of tokens"),
                (6.0, "count characters with len(text), not bytes"),
            ),
        ),
        ((["ああああ", "いい"], list), 1.0, once),
        ((["あ" * 9, "い"], pairs), 10 / 6, once, ((9 / 5, "that is the first text alone; take all texts"),)),
    ]
    return run_cases(answer, cases)


def is_lossless(codec: "Any", text: str, normalize: "Callable[[str], str]") -> bool:
    """Return whether encoding and decoding a text restores its normalized version."""
    return bool(codec.decode(codec.encode(text)) == normalize(text))


class _Toy:
    """A codec for the check. Its tokens are lowercase letters, which decoding joins with `between`."""

    def __init__(self, between: str) -> None:
        self.encode = lambda text: list(text.lower())
        self.decode = between.join

    def __repr__(self) -> str:
        return "codec"


def _check_lossless(answer: Any) -> str | None:
    good, spaced = _Toy(""), _Toy(" ")
    meant = "compare with normalize(text): a change that normalization makes on purpose is not a loss of the tokenizer"
    apart = (
        "this codec puts spaces between tokens, so 'abc' is decoded as 'a b c'; compare whole texts, "
        "not lengths or letters"
    )
    cases: list[Case] = [
        ((good, "abc", str.lower), True, meant, (("abc", "answer True or False: compare the two texts with =="),)),
        ((good, "ABC", str.lower), True, meant),
        ((spaced, "abc", str.lower), False, apart),
        ((spaced, "a", str.lower), True, apart),
    ]
    return run_cases(answer, cases)


CHAPTER = Chapter(
    Exercise(
        "write a function apply_merges(word, merges) that gives the word's symbols after all merges, in order",
        (
            (
                ("大学生", [("大", "学")]),
                ["大学", "生"],
                "merge the pair where it occurs, and keep the rest",
                (
                    (["大", "学", "生"], "nothing was merged: 大 and 学 become one symbol"),
                    (["大学生"], "merge only the pair; 生 is in no merge and stays a symbol"),
                    (["生", "大学"], "the symbols keep the order of the text"),
                    ("大学生", "the answer is a list of symbols, not a text"),
                ),
            ),
            (("雨", []), ["雨"], "without merges the symbols are the characters"),
            (("ababc", [("a", "b")]), ["ab", "ab", "c"], "a merge applies wherever the pair occurs, not once"),
            (("abab", [("a", "b"), ("ab", "ab")]), ["abab"], "a merge can join symbols that an earlier merge made"),
            (
                ("abc", [("b", "c"), ("a", "b")]),
                ["a", "bc"],
                "the order of the merges decides: the first merge uses up b",
            ),
            (("aaa", [("a", "a")]), ["aa", "a"], "go from left to right, and do not use a symbol twice"),
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
        _check_ratio,
        ("Two sums and one division are enough.", "Add up over all texts first, then divide once."),
        characters_per_token,
        "With the sums first, every token has the same weight. In a mean of the texts' ratios, a line of one word "
        "would weigh as much as a page.",
    ),
    Exercise(
        "write a function is_lossless(codec, text, normalize): does the codec give the normalized text back?",
        _check_lossless,
        (
            "codec.decode(codec.encode(text)) is the text that the codec restores.",
            "The restored text should equal normalize(text), not text.",
        ),
        is_lossless,
        "Normalization is meant to change a text; the tokenizer after it must not change anything.",
    ),
)
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution
