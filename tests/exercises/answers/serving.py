"""Right and wrong answers to the exercises of chapter 7."""

from itertools import accumulate, chain
from typing import Any

import numpy as np
from course_lib.exercises import serving

from tests.exercises.answers.forms import LIST, NUMBER, in_forms


def by_axes(rows: list[str], heads: int) -> Any:
    return np.array(rows).reshape(heads, 3, -1).swapaxes(0, 1).ravel()


def by_head(rows: list[str], heads: int) -> list[str]:
    width = len(rows) // heads
    third = width // 3
    parts: list[list[str]] = [[], [], []]
    for head in range(heads):
        for part in range(3):
            start = head * width + part * third
            parts[part] += rows[start : start + third]
    return [row for part in parts for row in part]


def count(layers: int, ranks: int, parallel: bool) -> int:
    return 5 + sum(6 + 6 * ranks + int(parallel) for _ in range(layers))


def two_rows(words: list[list[int]]) -> list[list[int]]:
    ids = [*chain(*words)]
    ends = list(accumulate(map(len, words)))
    return [ids, [ends[at] if at < len(ends) else -1 for at in range(len(ids))]]


RIGHT: dict[int, list[Any]] = {
    1: [by_axes, by_head, *in_forms(by_head, (tuple, np.array, lambda x: [*map(np.str_, x)]))],
    2: [count, *in_forms(count, NUMBER)],
    3: in_forms(two_rows, LIST),
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda rows, heads: rows, "of head 0, then of head 1"),
        (lambda rows, heads: sorted(rows, key=lambda row: "qkv".index(row[0]) * 10 + int(row[-1])), "stay together"),
        (lambda rows, heads: rows[::3] + rows[1::3] + rows[2::3], "stay together"),
        (lambda rows, heads: sorted(rows), "the queries come first"),
        (lambda rows, heads: None, "end the function with return"),
        (["q0", "q1"], "expected a function"),
    ],
    2: [
        (lambda n, ranks, parallel: n * 12 * ranks + 5, "are not split"),
        (lambda n, ranks, parallel: serving.files(n, ranks, False), "one file more"),
        (lambda n, ranks, parallel: serving.files(n, ranks, parallel) - 1, "and config.ini"),
        (lambda n, ranks, parallel: n * (4 + 8 * ranks) + 5, "are not split"),
        (lambda n, ranks, parallel: None, "end the function with return"),
        (149, "expected a function"),
    ],
    3: [
        (lambda words: [serving.word_list(words)[0], [len(w) for w in words] + [-1] * (sum(map(len, words)) - len(words))],
         "from the start of the list"),
        (lambda words: [[i for w in words for i in w], [sum(map(len, words[: k + 1])) for k in range(len(words))]], "fill the row"),
        (lambda words: [[i for w in words for i in w], [0] * sum(map(len, words))], "ends at 2"),
        (lambda words: None, "end the function with return"),
        ([[5, 6], [2, -1]], "expected a function"),
    ],
}  # fmt: skip
