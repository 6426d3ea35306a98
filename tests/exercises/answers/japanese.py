"""Right and wrong answers to the exercises of chapter 2."""

import re
from itertools import accumulate
from typing import Any

import numpy as np
from course_lib.exercises import japanese
from course_lib.japanese import normalize

from tests.exercises.answers.forms import NUMBER, TEXT, in_forms


def by_pattern(marked: str) -> str:
    signs = {"s": "␣", "e": "␛"}
    bare = re.sub("(^| )␣+", r"\1", marked)
    return re.sub("␛([se])", lambda match: signs[match[1]], " ".join(bare.split(" "))).strip()


def word_by_word(marked: str) -> str:
    out = []
    for word in marked.split(" "):
        while word.startswith("␣"):
            word = word[1:]
        if word:
            out.append(word.replace("␛s", "␣").replace("␛e", "␛"))
    return " ".join(out)


def ends(line: str) -> set[int]:
    return set(list(accumulate(map(len, line.split(" "))))[:-1])


def flags(gold: str, guess: str) -> float:
    """F1 over a flag for each gap between two characters."""
    gaps = range(1, len(gold.replace(" ", "")))
    right, made = ([gap in ends(line) for gap in gaps] for line in (gold, guess))
    both = sum(a and b for a, b in zip(right, made, strict=True))
    return 2 * both / (sum(right) + sum(made)) if any(right + made) else 1.0


def harmonic(gold: str, guess: str) -> float:
    right, made = ends(gold), ends(guess)
    if not right | made:
        return 1
    precision, recall = len(right & made) / max(1, len(made)), len(right & made) / max(1, len(right))
    return 2 * precision * recall / (precision + recall) if right & made else 0


def each(line: str) -> set[int]:
    return set(range(len(line.split(" "))))


RIGHT: dict[int, list[Any]] = {
    1: [
        normalize(japanese.TYPED),
        "LLMの学習スーパー①",
        "LLMの学習" + "スーパー\N{CIRCLED DIGIT ONE}",
        np.str_(japanese.NORMAL),
        np.array(japanese.NORMAL),
    ],
    2: [by_pattern, word_by_word, *in_forms(word_by_word, TEXT)],
    3: [flags, harmonic, *in_forms(flags, NUMBER)],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        ("LLMの学習 スーパー1", "NFKC"),
        ("LLMの学習〜〜スーパー①", "〜 is removed"),
        ("LLMの学習 スーーーパー①", "run of ー"),
        ("ＬＬＭの学習スーパー①", "half-width"),
        ("LLMの学習 スーパー①", "spaces beside"),
        ("LLMの学習スーパ①", "character by character"),
        (3, "a text in quotes"),
    ],
    2: [
        (lambda m: m.replace(" ", "").replace("␣", " "), "words keep their spaces"),
        (lambda m: m.replace(" ␣", " "), "several marks"),
        (lambda m: m.replace("␣", ""), "at the end"),
        (lambda m: " ".join(w for w in m.replace("␣", "").split(" ") if w), "itself held"),
        (lambda m: [w.lstrip("␣") for w in m.split(" ")], "join the words"),
        (lambda m: " ".join(w for w in (w.replace("␛s", "␣").replace("␛e", "␛").lstrip("␣") for w in m.split(" ")) if w),
         "strip the marks before"),
        (lambda m: by_pattern(m.replace("␛e", "␛")), "replace ␛s before ␛e"),
    ],
    3: [
        (lambda g, s: 2 * len(set(g.split()) & set(s.split())) / (len(g.split()) + len(s.split())), "shared words"),
        (lambda g, s: 2 * len(each(g) & each(s)) / (len(each(g)) + len(each(s))), "counts characters, not words"),
        (lambda g, s: float(g == s), "not all or nothing"),
        (lambda g, s: 2 * (len(ends(g) & ends(s)) + 1) / (len(ends(g)) + len(ends(s)) + 2), "does not count"),
        (lambda g, s: len(ends(g) & ends(s)) / max(1, len(ends(g) | ends(s))) if " " in g else 1, "shared / all boundaries"),
        (lambda g, s: 2 * len(ends(g) & ends(s)) / (len(ends(g)) + len(ends(s))), "without a boundary agree"),
    ],
}  # fmt: skip
