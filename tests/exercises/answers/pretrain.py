"""Right and wrong answers to the exercises of chapter 4's second half."""

from math import cos, pi
from typing import Any

import numpy as np


def memory(parameters: int, ranks: int, stage: int) -> float:
    whole = {0: 16, 1: 4, 2: 2, 3: 0}[stage]
    return parameters * (whole + (16 - whole) / ranks)


def rate(step: int, warmup: int, decay: int, high: float, low: float, first: int = 0) -> float:
    """The cosine without the constant end, the warm-up moved by `first` steps."""
    if step <= warmup:
        return high * (step + first) / warmup
    return low + (high - low) * (1 + cos(pi * (step - warmup) / (decay - warmup))) / 2


def capped(step: int, warmup: int, decay: int, high: float, low: float) -> float:
    return rate(min(step, decay), warmup, decay, high, low)


NAMES: dict[str, Any] = {}
RIGHT: dict[int, list[Any]] = {
    1: [["batch.micro_size=1"], np.array(["batch.micro_size=2"]), ("zero.stage=1", "batch.micro_size=1")],
    2: [memory],
    3: [capped],
}  # fmt: skip
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        ([], "largest part is activations"),
        (["zero.stage=3", "batch.micro_size=1"], "without offload"),
        (["batch.global_size=264", "batch.micro_size=1"], "264 samples instead of 528"),
        (["batch.micro=1"], "unknown"),
        ("batch.micro_size=1", "The task: choose settings"),
    ],
    2: [
        (lambda p, n, stage: 16 * p / n, "shards nothing"),
        (lambda p, n, stage: memory(p, n, stage and min(3, stage + 1)), "optimizer states alone"),
        (lambda p, n, stage: 4 * p + 12 * p / (n if stage else 1), "gradients too"),
        (lambda p, n, stage: memory(p, n, min(stage, 2)), "shards all three"),
    ],
    3: [
        (lambda s, w, d, high, low: rate(s, w, d, high, low, -1), "count from 1"),
        (lambda s, w, d, high, low: rate(s, w, d, high, low) if s <= w else rate(s, 0, d, high, low), "after the warm-up"),
        (lambda s, w, d, high, low: rate(s, w, d, *(high, low) if s <= w else (low, high)), "1 - cos would rise"),
        (rate, "stays at low"),
    ],
}  # fmt: skip
