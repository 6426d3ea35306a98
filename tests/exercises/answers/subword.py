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
        for at in range(len(symbols) - 1):
            if (symbols[at], symbols[at + 1]) == pair:
                symbols[at : at + 2] = ["".join(pair)]
                break
    return symbols


def merge(symbols: list[str], pair: Pair) -> list[str]:
    if len(symbols) < 2:
        return symbols
    if (symbols[0], symbols[1]) == pair:
        return ["".join(pair), *merge(symbols[2:], pair)]
    return [symbols[0], *merge(symbols[1:], pair)]


def recursive(word: str, merges: list[Pair]) -> list[str]:
    return reduce(merge, merges, list(word))


def rebuilt(word: str, merges: list[Pair]) -> list[str]:
    symbols = list(word)
    for left, right in merges:
        out: list[str] = []
        fresh = False
        for symbol in symbols:
            fresh = bool(out) and not fresh and (out[-1], symbol) == (left, right)
            out[len(out) - fresh :] = [left + right] if fresh else [symbol]
        symbols = out
    return symbols


def ratio(texts: list[str], encode: Any) -> float:
    characters = tokens = 0
    for text in texts:
        characters += len(text)
        tokens += len(encode(text))
    return characters / tokens


NAMES: dict[str, Any] = {}
RIGHT: dict[int, list[Any]] = {
    1: [recursive, rebuilt, *in_forms(recursive, (tuple, np.array, lambda x: np.array(x, dtype=object), lambda x: [*map(np.str_, x)]))],
    2: [ratio, lambda texts, e: len("".join(texts)) / sum(len(e(t)) for t in texts), *in_forms(ratio, NUMBER)],
    3: [(False, 1500), [False, 1400], np.array([0, 1600]), (np.bool_(False), np.int32(1500)), torch.tensor([0, 1500]), (0, 1500.0)],
}  # fmt: skip
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda word, merges: list(word), "nothing was merged"),
        (lambda word, merges: [word], "stays a symbol"),
        (once, "not once"),
        (lambda word, merges: recursive(word, sorted(merges)), "the order of the merges decides"),
        (lambda word, merges: recursive(word, merges)[::-1], "order of the text"),
        (lambda word, merges: "".join(recursive(word, merges)), "a list of symbols"),
    ],
    2: [
        (lambda texts, e: sum(len(e(t)) for t in texts) / sum(map(len, texts)), "turn the fraction around"),
        (lambda texts, e: sum(len(t) / len(e(t)) for t in texts) / len(texts), "mean of means"),
        (lambda texts, e: len(texts[0]) / len(e(texts[0])), "first text alone"),
        (lambda texts, e: sum(map(len, texts)) / len(texts), "characters per text"),
        (lambda texts, e: sum(len(t.encode()) for t in texts) / sum(len(e(t)) for t in texts), "not bytes"),
    ],
    3: [
        ((True, 1500), "word boundary"),
        ((False, 500), "Keep more"),
        ((False, 2500), "Keep fewer"),
        ((True, 4000), "Keep fewer"),
        ((1500, False), "the order is"),
        ((False, 0), "a whole number"),
        ((False, True), "a whole number"),
        ((False, 0.5), "a whole number"),
        (1500, "hand in two values"),
    ],
}
