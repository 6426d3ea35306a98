"""Right and wrong answers to the exercises of chapter 3."""

from typing import Any

import numpy as np
import torch

Pair = tuple[str, str]


def once(word: str, merges: list[Pair]) -> list[str]:
    """Applies each merge at the first place only."""
    symbols = list(word)
    for pair in merges:
        at = next((at for at in range(len(symbols) - 1) if (symbols[at], symbols[at + 1]) == pair), None)
        if at is not None:
            symbols[at : at + 2] = ["".join(pair)]
    return symbols


def merged(word: str, merges: list[Pair]) -> list[str]:
    """Applies each merge everywhere, by replacing in a text in which spaces separate the symbols."""
    text = " " + "  ".join(word) + " "
    for left, right in merges:
        text = text.replace(f" {left}  {right} ", f" {left}{right} ")
    return text.split()


def ratio(texts: list[str], encode: Any) -> float:
    return len("".join(texts)) / sum(len(encode(text)) for text in texts)


NAMES: dict[str, Any] = {}
RIGHT: dict[int, list[Any]] = {
    1: [merged],
    2: [ratio],
    3: [(False, 1500), np.array([0, 1600]), torch.tensor([0, 1500])],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda word, merges: list(word), "in which 大 and 学 are one"),
        (once, "not once"),
        (lambda word, merges: merged(word, sorted(merges)), "order of the merges"),
    ],
    2: [
        (lambda texts, e: sum(len(e(t)) for t in texts) / sum(map(len, texts)), "over len(encode(text))"),
        (lambda texts, e: sum(len(t) / len(e(t)) for t in texts) / len(texts), "mean of means"),
        (lambda texts, e: sum(len(t.encode()) for t in texts) / sum(len(e(t)) for t in texts), "not bytes"),
    ],
    3: [
        ((True, 1500), "word boundary"),
        ((False, 500), "keep more"),
        ((False, 2500), "keep fewer"),
        ((1500, False), "True or False first"),
    ],
}
