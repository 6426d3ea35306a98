"""Right and wrong answers to the exercises of chapter 4's first half."""

from typing import Any

import numpy as np
import torch

from tests.exercises.answers.forms import NUMBER, in_forms


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


def step(w: float, g: float, m: float, v: float, t: int, r: float, beta2: float = 0.95, decay: float = 0.1) -> float:
    m, v = 0.9 * m + 0.1 * g, beta2 * v + (1 - beta2) * g * g
    return w * (1 - r * decay) - r * m / (1 - 0.9**t) / ((v / (1 - beta2**t)) ** 0.5 + 1e-8)


def entry(number: int, loss: Any) -> dict[str, Any]:
    return {"step": number, "train": loss, "held out": loss}


GOOD = [entry(1, 8.9), entry(60, 6.5)]
USUAL = {0.003: [entry(1, 8.9), entry(60, 6.79)]}
RIGHT: dict[int, list[Any]] = {
    1: [
        lambda s: softmax(masked(s, -np.inf)),
        lambda s: torch.tensor(s).masked_fill(torch.ones(len(s), len(s)).triu(1).bool(), -torch.inf).softmax(-1),
        lambda s: [tuple(softmax([line[: row + 1]])[0]) + (0,) * (len(s) - row - 1) for row, line in enumerate(s)],
        lambda s: softmax(np.asarray(s) + np.where(np.tri(len(s)) == 1, 0, -1e9)),
        lambda s: torch.tensor(softmax(masked(s, -np.inf)), dtype=torch.float32),
        in_place,
    ],
    2: in_forms(step, NUMBER),
    3: [
        USUAL | {4e-2: GOOD},
        {4e-2: tuple(GOOD)} | USUAL,
        {np.float32(3e-3): USUAL[3e-3], np.float32(4e-2): [entry(1, np.float64(8.9)), entry(60, np.float32(6.5))]},
        USUAL | {4e-2: [entry(1, torch.tensor(8.9)), entry(60, torch.tensor(6.5))]},
        USUAL | {4e-2: np.array(GOOD), 1.0: [entry(1, 8.9), entry(60, float("nan"))]},
    ],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda s: softmax(s), "there is no mask"),
        (lambda s: softmax(masked(s, 0.0)), "a score of 0 is no mask"),
        (lambda s: np.tril(softmax(s)), "after the division"),
        (lambda s: np.tril(s) + np.eye(len(s)), "a single token"),
        (lambda s: softmax(masked(s, -np.inf)).T, "exchanged"),
        (lambda s: [[np.exp(v) for v in row] for row in s], "by its sum"),
        (lambda s: None, "end the function with return"),
        ([[1.0]], "expected a function"),
    ],
    2: [
        (lambda w, g, m, v, t, r: w - r * g, "plain gradient descent"),
        (lambda w, g, m, v, t, r: step(w, g, m, v, t, r, decay=0), "only weight decay acts"),
        (lambda w, g, m, v, t, r: step(w, g, m, v, t, r, beta2=0.999), "their own β"),
        (lambda w, g, m, v, t, r: step(w, g, m, v, 1, r), "their own β"),
        (lambda w, g, m, v, t, r: step(w, -g, m, v, t, r), "against the gradient"),
        (lambda w, g, m, v, t, r: None, "end the function with return"),
        (0.5, "expected a function"),
    ],
    3: [
        (1e-2, "hand in the tries"),
        ((1e-2, GOOD), "hand in the tries"),
        (USUAL | {1e-2: [6.5]}, "the list of entries"),
        (USUAL | {1e-2: []}, "the list of entries"),
        ({4e-2: GOOD}, "is missing"),
        (USUAL, "the only rate"),
        (USUAL | {3e-4: [entry(1, 8.9), entry(60, 8.1)]}, "too cautious"),
        (USUAL | {0.2: [entry(1, 8.9), entry(60, 7.0)]}, "too high"),
        (USUAL | {1.0: [entry(1, 8.9), entry(60, 30.0)]}, "overshoots"),
        (USUAL | {1.0: [entry(1, 8.9), entry(60, float("nan"))]}, "overshoots"),
        (USUAL | {1e-2: [entry(1, 8.9), entry(200, 6.3)]}, "has 60 steps"),
    ],
}
