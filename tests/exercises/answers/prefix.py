"""Right and wrong answers to the exercises of chapter 6."""

from typing import Any

import numpy as np
import torch
from course_lib.exercises import prefix


def labels(prompt: list[int], target: list[int], end: int) -> tuple[list[int], list[int]]:
    text = prompt + target + [end]
    return text[:-1], [-100 if at < len(prompt) else text[at] for at in range(1, len(text))]


def layout(own: int, tokens: int, widest: int, longest: int) -> tuple[list[int], list[int]]:
    mask = [int(at >= widest - own) for at in range(widest)] + [int(at >= longest - tokens) for at in range(longest)]
    return mask, list(range(own, own + tokens))


# length → share of exact matches of each seed
SHARES = {1: [0.25, 0.31, 0.28], 2: [0.24, 0.34, 0.35], 5: [0.26, 0.32, 0.29], 20: [0.26, 0.34, 0.29]}
SHARES |= {3: [0.0] * 3, 4: [0.02, 0.0, 0.0]}
NAMES: dict[str, Any] = {}
RIGHT: dict[int, list[Any]] = {
    1: [prefix.parameters],
    2: [labels],
    3: [layout],
    4: [(1, [1, 5, 20]), (np.int64(1), np.array([20, 5, 1])), (torch.tensor(5), torch.tensor([3, 4, 5])), (1, range(1, 6))],
}  # fmt: skip
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda p, n, h, i, d: (prefix.parameters(p, n, h, i, d)[0], p * n * h), "a key and a value in each layer"),
        (lambda p, n, h, i, d: (prefix.parameters(10, n, h, 10, 10)[0], p * 2 * n * h), "the published run"),
    ],
    2: [
        (lambda p, t, e: ([*p, *t], [*p[1:], *t, e]), "is not learned"),
        (lambda p, t, e: ([*p, *t, e], [-100] * (len(p) - 1) + [*t, e]), "does not read the end"),
        (lambda p, t, e: ([*p, *t], [-100] * len(p) + t), "is the next token"),
    ],
    3: [
        (lambda p, t, mp, mt: (prefix.slots(p, t, mp, mt)[0], list(range(t))), "come after the prefix"),
        (lambda p, t, mp, mt: ([1] * p + [0] * (mp - p) + [1] * t + [0] * (mt - t), [*range(p, p + t)]), "padded on the left, after"),
        (lambda p, t, mp, mt: ([0] * (mp + mt - p - t) + [1] * (p + t), [*range(p, p + t)]), "after the prefix"),
        (lambda p, t, mp, mt: (prefix.slots(p, t, mp, mt)[0], [*range(mp, mp + t)]), "padding takes no position"),
    ],
    4: [
        (5, "The task: choose the shortest length"),
        ((5, [5, 20, 20]), "stop helping"),
        ((3, [3, 5, 20]), "by more than the spread"),
        ((20, [1, 5, 20]), "with fewer positions"),
    ],
}  # fmt: skip
