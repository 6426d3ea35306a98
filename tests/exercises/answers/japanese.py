"""Right and wrong answers to the exercises of chapter 2."""

import re
from typing import Any

import numpy as np
import torch
from course_lib.exercises import japanese
from course_lib.japanese import normalize

from tests.exercises.answers.forms import TEXT, in_forms


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


NAMES: dict[str, Any] = {}
RIGHT: dict[int, list[Any]] = {
    1: [
        normalize(japanese.TYPED),
        "LLMの学習スーパー①",
        "LLMの学習" + "スーパー\N{CIRCLED DIGIT ONE}",
        np.str_(japanese.NORMAL),
        np.array(japanese.NORMAL),
    ],
    2: [
        (3853, -1176),
        [3853.0, -1176.0],
        np.array(japanese.costs(japanese.KIMONO)) - japanese.costs(japanese.FOOTWEAR),
        torch.tensor([3853, -1176]),
        (np.int32(3853), np.float64(-1176)),
    ],
    3: [by_pattern, word_by_word, *in_forms(word_by_word, TEXT)],
    4: [27, 30.0, 33, np.int64(28), np.array(31), torch.tensor(29), torch.tensor(32.0)],
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
        (2677, "hand in two numbers"),
        (("3853", "-1176"), "hand in two numbers"),
        ((-1176, 3853), "the order is"),
        ((-3853, 1176), "the other way round"),
        ((30593, 27916), "these are the totals"),
        ((3853, 1176), "one sign"),
        ((3853, 2677), "the words are right"),
        ((47624, -17031), "not the differences"),
    ],
    3: [
        (lambda m: m.replace(" ", "").replace("␣", " "), "words keep their spaces"),
        (lambda m: m.replace(" ␣", " "), "several marks"),
        (lambda m: m.replace("␣", ""), "at the end"),
        (lambda m: " ".join(w for w in m.replace("␣", "").split(" ") if w), "itself held"),
        (lambda m: [w.lstrip("␣") for w in m.split(" ")], "join the words"),
        (lambda m: " ".join(w for w in (w.replace("␛s", "␣").replace("␛e", "␛").lstrip("␣") for w in m.split(" ")) if w),
         "strip the marks before"),
        (lambda m: by_pattern(m.replace("␛e", "␛")), "replace ␛s before ␛e"),
    ],
    4: [
        (23, "more than 0.1: too few"),
        (17, "wider than 0.1 again"),
        (102, "more work than needed"),
        (40, "more work than needed"),
        (500, "only 102 sentences"),
        (1, "at least 2 of them"),
        (0.1, "a whole number"),
        ("30", "a whole number"),
    ],
}  # fmt: skip
