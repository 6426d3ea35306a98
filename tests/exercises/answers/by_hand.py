"""Right and wrong answers to the exercises of chapter 4's first half."""

from typing import Any

import numpy as np
import torch


def softmax(scores: Any) -> Any:
    powers = np.exp(np.asarray(scores) - np.max(scores, -1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def masked(scores: Any, value: float) -> Any:
    return np.where(np.tri(len(scores)) == 1, scores, value)


def in_place(scores: list[list[float]]) -> Any:
    """Changes its argument."""
    for row, line in enumerate(scores):
        line[row + 1 :] = [-np.inf] * (len(line) - row - 1)
    return softmax(scores)


def step(w: float, g: float, m: float, v: float, t: int, r: float, beta2: float = 0.95) -> float:
    m, v = 0.9 * m + 0.1 * g, beta2 * v + (1 - beta2) * g * g
    return w * (1 - r * 0.1) - r * m / (1 - 0.9**t) / ((v / (1 - beta2**t)) ** 0.5 + 1e-8)


# rate → held-out loss after 60 steps
LOSSES = {0.003: 3.98, 0.02: 2.61, 0.04: 2.72, 0.08: 4.12, 2.0: float("nan")}


def learn(rate: float, steps: int) -> Any:
    """The notebook's experiment, without its training."""
    yield {"step": 1, "held out": 7.4}
    yield {"step": steps, "held out": LOSSES[round(float(rate), 4)]}


NAMES = {"learn": learn}
RIGHT: dict[int, list[Any]] = {
    1: [
        lambda s: softmax(masked(s, -np.inf)),
        lambda s: torch.tensor(s).masked_fill(torch.ones(len(s), len(s)).triu(1).bool(), -torch.inf).softmax(-1),
        in_place,
    ],
    2: [step],
    3: [(learn, 4e-2), (learn, np.float32(0.04)), (learn, torch.tensor(0.04))],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda s: softmax(s), "must not read from column 2"),
        (lambda s: np.tril(softmax(s)), "mask before the division"),
        (lambda s: np.exp(masked(s, -np.inf)) / np.exp(masked(s, -np.inf)).sum(-1), "must add up to 1"),
        (lambda s: [[np.exp(v) for v in row] for row in s], "by its sum"),
    ],
    2: [
        (lambda w, g, m, v, t, r: w - r * g, "the weight moves by the rate"),
        (lambda w, g, m, v, t, r: step(w, g, m, v, t, r, beta2=0.999), "their own β"),
        (lambda w, g, m, v, t, r: step(w, -g, m, v, t, r), "against the gradient"),
    ],
    3: [
        (4e-2, "The task: find a learning rate"),
        ((learn, 0.08), "too high"),
        ((learn, 2.0), "overshoots"),
    ],
}  # fmt: skip
