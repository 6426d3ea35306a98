"""Right and wrong answers to the exercises of chapter 7."""

from math import ceil
from typing import Any

import numpy as np
import torch


def by_axes(rows: list[str], heads: int) -> Any:
    return np.array(rows).reshape(heads, 3, -1).swapaxes(0, 1).ravel()


def fewest(heads: int, inner: int, split: float, shared: float, card: float) -> int:
    return next((n for n in range(1, 65) if not (heads % n or inner % n) and shared * n + split <= card * n), 0)


def measure(name: str) -> tuple[int, float]:
    """The notebook's experiment: size and change of the logits in a number format."""
    return {"fp32": (100, 0.0), "fp16": (50, 0.004), "bf16": (50, 0.032)}[name]


def of_fp16_base(name: str) -> Any:
    """The same for a base that is stored in fp16, as tensors."""
    size, change = measure(name)
    return torch.tensor([size, change * (name == "bf16")])


NAMES = {"measure": measure}
RIGHT: dict[int, list[Any]] = {
    1: [by_axes],
    2: [fewest],
    3: [("fp16", measure), (np.str_("fp16"), measure), ("fp16", of_fp16_base)],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda rows, heads: sorted(rows, key=lambda row: "qkv".index(row[0]) * 10 + int(row[-1])), "stay together"),
        (lambda rows, heads: sorted(rows), "of all heads come first"),
    ],
    2: [
        (lambda h, i, split, shared, card: 1, "tensors wholly"),
        (lambda h, i, split, shared, card: ceil((split + shared) / card), "does not divide its 22 heads"),
        (lambda h, i, split, shared, card: fewest(h, h, split, shared, card), "does not divide the inner width"),
        (lambda h, i, split, shared, card: fewest(h, i, split + shared, 0, card), "alone need 6 GB"),
    ],
    3: [
        ("fp16", "The task: choose the number format"),
        (("fp32", measure), "half is allowed"),
        (("bf16", measure), "0.032 instead of 0.004"),
        (("bf16", of_fp16_base), "instead of 0 nats"),
    ],
}  # fmt: skip
