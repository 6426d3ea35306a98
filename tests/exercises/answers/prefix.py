"""Right and wrong answers to the exercises of chapter 6."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from course_lib.exercises import prefix
from course_lib.prefix.comparison import Runs
from course_lib.prefix.single_process_trainer import Case

from tests.exercises.answers.forms import LIST, PARTS, in_forms


def labels(prompt: list[int], target: list[int], end: int) -> tuple[list[int], list[int]]:
    text = prompt + target + [end]
    return text[:-1], [-100 if at < len(prompt) else text[at] for at in range(1, len(text))]


def layout(own: int, tokens: int, widest: int, longest: int) -> tuple[list[int], list[int]]:
    mask = [int(at >= widest - own) for at in range(widest)] + [int(at >= longest - tokens) for at in range(longest)]
    return mask, list(range(own, own + tokens))


SHARES = {1: [0.1, 0.2, 0.15], 5: [0.7, 0.6, 0.65], 20: [0.7, 0.6, 0.68]}
CASE = Case([], None, None, 0, 0, 0, 0.0)


def measured(**changed: Any) -> dict[int, Any]:
    """The shares, some of them changed: five=[…]."""
    names = {"one": 1, "five": 5, "twenty": 20}
    return SHARES | {names[name]: shares for name, shares in changed.items()}


RIGHT: dict[int, list[Any]] = {
    1: [*in_forms(prefix.parameters, LIST), lambda p, n, h, i, d: (p * i + (i + 1) * d + (d + 1) * 2 * n * h, p * n * 2 * h)],
    2: in_forms(labels, PARTS),
    3: in_forms(layout, PARTS),
    4: [
        (5, SHARES),
        [5, SHARES],
        (np.int64(5), {length: np.array(shares) for length, shares in SHARES.items()}),
        (torch.tensor(5), {length: torch.tensor(shares) for length, shares in SHARES.items()}),
        (5, {str(length): tuple(shares) for length, shares in SHARES.items()}),
        (5, {n: Runs(tuple(replace(CASE, matches=share) for share in shares)) for n, shares in SHARES.items()}),
        (1, measured(one=[0.6, 0.7, 0.66])),
        (20, measured(twenty=[0.9, 0.92, 0.91])),
        (1, {1: [1.0, 1.0, 1.0], 2: [1.0, 1.0, 1.0], 4: [1.0, 1.0, 1.0]}),
    ],
}  # fmt: skip
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda p, n, h, i, d: (prefix.parameters(p, n, h, i, d)[0], p * n * h), "deployed numbers double"),
        (lambda p, n, h, i, d: (p * i + i * d + d * 2 * n * h, 2 * p * n * h), "numbers more"),
        (lambda p, n, h, i, d: prefix.parameters(p, n, h, i, d)[::-1], "trained, then deployed"),
        (lambda p, n, h, i, d: (prefix.parameters(0, n, h, i, d)[0], 2 * p * n * h), "the embedding is trained"),
        (lambda p, n, h, i, d: None, "end the function with return"),
    ],
    2: [
        (lambda p, t, e: ([*p, *t], [*p[1:], *t, e]), "are not learned: -100"),
        (lambda p, t, e: ([*p, *t], [-100] * len(p) + t[1:] + [e]), "which is learned"),
        (lambda p, t, e: ([*p, *t, e], [-100] * (len(p) - 1) + [*t, e]), "nothing follows it"),
        (lambda p, t, e: ([*p, *t], ([-100] * (len(p) - 1) + t)[: len(p) + len(t)]), "each position has a label"),
        (lambda p, t, e: ([*p, *t], [-100] * len(p) + t), "not shifted"),
        (lambda p, t, e: ([*p, *t, e], [-100] * len(p) + [*t, e]), "not shifted"),
    ],
    3: [
        (lambda p, t, mp, mt: (prefix.slots(p, t, mp, mt)[0], list(range(t))), "come after the prefix"),
        (lambda p, t, mp, mt: ([1] * p + [0] * (mp - p) + [1] * t + [0] * (mt - t), [*range(p, p + t)]), "on the left of each part"),
        (lambda p, t, mp, mt: ([0] * (mp + mt - p - t) + [1] * (p + t), [*range(p, p + t)]), "its own padding"),
        (lambda p, t, mp, mt: (prefix.slots(p, t, mp, mt)[0], [*range(mp, mp + t)]), "the prefix here has 2"),
        (lambda p, t, mp, mt: None, "end the function with return"),
    ],
    4: [
        (5, "hand in the chosen length"),
        ((5, [0.7, 0.6, 0.65]), "hand in the chosen length"),
        ((5, {1: SHARES[1], 5: SHARES[5]}), "stop helping"),
        ((5, measured(five=[0.65])), "take 3 seeds"),
        ((5, measured(five=[70, 60, 65])), "between 0 and 1"),
        ((10, SHARES), "not among the measured"),
        ((1, SHARES), "by more than the spread"),
        ((20, SHARES), "with fewer positions"),
        ((1, {1: [0.0, 0.0, 0.02], 5: [0.0, 0.02, 0.0], 20: [0.0, 0.0, 0.0]}), "no length works"),
    ],
}  # fmt: skip
