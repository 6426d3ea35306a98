"""Right and wrong answers to the exercises of chapter 3."""

from functools import reduce
from typing import Any

import numpy as np
import torch

from tests.exercises.answers.forms import NUMBER, in_forms

Pair = tuple[str, str]


def once(word: str, merges: list[Pair]) -> list[str]:
    """Applies each merge at the first place only."""
    symbols = list(word)
    for pair in merges:
        at = next((at for at in range(len(symbols) - 1) if (symbols[at], symbols[at + 1]) == pair), None)
        if at is not None:
            symbols[at : at + 2] = ["".join(pair)]
    return symbols


def merge(symbols: list[str], pair: Pair) -> list[str]:
    if len(symbols) < 2:
        return symbols
    if (symbols[0], symbols[1]) == pair:
        return ["".join(pair), *merge(symbols[2:], pair)]
    return [symbols[0], *merge(symbols[1:], pair)]


def recursive(word: str, merges: list[Pair]) -> list[str]:
    return reduce(merge, merges, list(word))


def ratio(texts: list[str], encode: Any) -> float:
    return len("".join(texts)) / sum(len(encode(text)) for text in texts)


NAMES: dict[str, Any] = {}
RIGHT: dict[int, list[Any]] = {
    1: in_forms(recursive, (list, tuple, np.array, lambda x: np.array(x, dtype=object))),
    2: in_forms(ratio, NUMBER),
    3: [(False, 1500), np.array([0, 1600]), (np.bool_(False), np.int32(1500)), torch.tensor([0, 1500]), (0, 1500.0)],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda word, merges: list(word), "nothing was merged"),
        (once, "not once"),
        (lambda word, merges: recursive(word, sorted(merges)), "order of the merges"),
        (lambda word, merges: "".join(recursive(word, merges)), "a list of symbols"),
    ],
    2: [
        (lambda texts, e: sum(len(e(t)) for t in texts) / sum(map(len, texts)), "around"),
        (lambda texts, e: sum(len(t) / len(e(t)) for t in texts) / len(texts), "mean of means"),
        (lambda texts, e: sum(len(t.encode()) for t in texts) / sum(len(e(t)) for t in texts), "not bytes"),
    ],
    3: [
        ((True, 1500), "word boundary"),
        ((False, 500), "keep more"),
        ((False, 2500), "keep fewer"),
        ((1500, False), "True or False first"),
        ((False, 0.5), "whole number"),
    ],
}
