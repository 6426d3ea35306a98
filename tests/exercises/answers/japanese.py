"""Other right answers, and wrong ones, to the exercises of chapter 2."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from course_lib.japanese.lattice import Word

from tests.exercises.answers.folded import Folded

Link = Callable[[Word, Word], int]
Found = tuple[int, list[str]]
FOLDED = Folded("02_normalize_and_segment")
NAMES, changed = FOLDED.names, FOLDED.changed
cheapest = NAMES["cheapest_ours"]


def of_a_place(words: Sequence[Word], connection: Link) -> Found:
    """Keeps one path for all words that end at the same character."""
    best: dict[int, tuple[int, Word, list[str]]] = {0: (0, words[0], [])}
    for word in words[1:]:
        total, before, path = best[word.start]
        total += connection(before, word) + word.cost
        if word.end not in best or total < best[word.end][0]:
            best[word.end] = total, word, [*path, word.text]
    total, _, path = best[words[-1].end]
    return total, path[:-1]


def step_by_step(words: Sequence[Word], connection: Link) -> Found:
    """Takes the cheapest next word."""
    now, path, total = words[0], [], 0
    while now is not words[-1]:
        after = [
            (connection(now, word) + word.cost, at) for at, word in enumerate(words) if at and word.start == now.end
        ]
        total += min(after)[0]
        now = words[min(after)[1]]
        path.append(now.text)
    return total, path[:-1]


def by_pattern(marked: str) -> str:
    signs = {"s": "␣", "e": "␛"}
    bare = re.sub("(^| )␣+", r"\1", marked)
    return re.sub("␛([se])", lambda match: signs[match[1]], " ".join(bare.split(" "))).strip()


RIGHT: dict[int, list[Any]] = {
    3: [2435, np.int64(4000), 7000],
    4: [by_pattern],
    5: [["あす", "か", "の", "みや"]],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda text: text.split("。"), "belongs to it"),
        (lambda text: [each for each in re.split("(?<=[。！？!?])", text) if each], "one end"),
        (lambda text: re.findall("[^。！？!?]*[。！？!?]+", text), "the rest"),
        (lambda text: [each for each in re.split("(?<=[。！？!?])(?![。！？!?])", text) if each], "inside brackets"),
        (changed("split_ours", ("「『（(", "「"), ("」』）)", "」")), "four kinds"),
        (changed("split_ours", ("max(0, ", "max(-9, ")), "alone"),
    ],
    2: [
        (lambda words, link: cheapest(words, lambda before, word: 0), "connection costs"),
        (lambda words, link: cheapest(words, lambda a, b: link(a, b) if b.text else 0), "the end"),
        (of_a_place, "of each word"),
        (step_by_step, "next word"),
        (lambda words, link: (cheapest(words, link)[0], [*cheapest(words, link)[1], ""]), "without start and end"),
        (lambda words, link: print(end=""), "return"),
    ],
    3: [(2434, "too cheap"), (9000, "too expensive"), ("much", "cannot be judged")],
    4: [
        (lambda m: m.replace(" ", "").replace("␣", " "), "join the words"),
        (lambda m: m.replace("␣", ""), "at the end"),
        (lambda m: by_pattern(m.replace("␛e", "␛")), "before ␛e"),
    ],
    5: [
        ("くる まで 待つ", "of your own"),
        ("きょう は いしゃ に いく", "other reading"),
        ("や ま", "into characters"),
        ("きょう はい しゃ に いく", "more are wanted"),
        ("今日中 に 行く", "candidates"),
        ("", "characters"),
    ],
}
