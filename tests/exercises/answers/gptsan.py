"""Right and wrong answers to the exercises of chapter 5."""

from typing import Any

import numpy as np
import torch


def room(choices: list[int], experts: int, factor: float, least: int = 4, cut: Any = int) -> list[bool]:
    """Capacity with another minimum or another rounding."""
    return [choices[:i].count(e) < max(least, cut(len(choices) * factor / experts)) for i, e in enumerate(choices)]


def mask(tokens: int, prefix: int, spout: bool, own: int = 1, slot: int = 1) -> list[list[int]]:
    """The mask with or without the token itself, with or without a slot for the spout; the prefix counted in tokens."""
    first = slot * spout
    return [[int(j < first + i + own or j < first + prefix) for j in range(first + tokens)] for i in range(tokens)]


def in_slots(tokens: int, prefix: int, spout: bool) -> list[list[int]]:
    return mask(tokens, max(0, prefix - spout), spout)


# experts that 1,024 positions choose: an even share is 256, and expert 0 has 346 of them
CHOICES = [0] * 346 + [1] * 226 + [2] * 226 + [3] * 226
NAMES = {"choices": CHOICES, "kept": room}
RIGHT: dict[int, list[Any]] = {
    1: [room],
    2: [1.3, np.float32(1.3), torch.tensor(1.3)],
    3: [in_slots],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda c, e, f: [True] * len(c), "first come, first served"),
        (lambda c, e, f: room(c, e, f, cut=round), "int(5.625)"),
        (lambda c, e, f: room(c, e, f, least=1), "no capacity is below 4"),
    ],
    2: [
        ("much", "The task: find the smallest capacity factor"),
        (1.25, "go higher"),
        (1.35, "more than needed: 1.3"),
    ],
    3: [
        (lambda n, p, s: mask(n, p, s, own=0), "all tokens up to itself"),
        (lambda n, p, s: mask(n, p, s, slot=0), "a column, but no row"),
        (mask, "counted in slots"),
    ],
}
