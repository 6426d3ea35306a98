"""Right and wrong answers to the exercises of chapter 7."""

from math import ceil
from typing import Any

import numpy as np

from tests.exercises.answers.forms import LIST, NUMBER, in_forms


def by_axes(rows: list[str], heads: int) -> Any:
    return np.array(rows).reshape(heads, 3, -1).swapaxes(0, 1).ravel()


def by_head(rows: list[str], heads: int) -> list[str]:
    width = len(rows) // heads
    third = width // 3
    parts: list[list[str]] = [[], [], []]
    for head in range(heads):
        for part in range(3):
            start = head * width + part * third
            parts[part] += rows[start : start + third]
    return [row for part in parts for row in part]


def fewest(heads: int, inner: int, split: float, shared: float, card: float) -> int:
    return next((n for n in range(1, 65) if not (heads % n or inner % n) and shared * n + split <= card * n), 0)


def formats(**changes: Any) -> dict[str, Any]:
    """Size and change of the logits for each number format."""
    return {"fp32": (100, 0.0), "fp16": (50, 0.004), "bf16": (50, 0.032)} | changes


RIGHT: dict[int, list[Any]] = {
    1: [by_axes, by_head, *in_forms(by_head, (tuple, np.array, lambda x: [*map(np.str_, x)]))],
    2: [fewest, *in_forms(fewest, NUMBER)],
    3: [
        ("fp16", formats()),
        ["fp16", formats()],
        # of a base that is stored in fp16
        ("fp16", formats(fp16=(50, 0.0))),
        (np.str_("fp16"), formats(fp32=(100, 1e-6))),
        *(("fp16", {name: form(pair) for name, pair in formats().items()}) for form in LIST),
    ],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda rows, heads: rows, "of head 0, then of head 1"),
        (lambda rows, heads: sorted(rows, key=lambda row: "qkv".index(row[0]) * 10 + int(row[-1])), "stay together"),
        (lambda rows, heads: rows[::3] + rows[1::3] + rows[2::3], "stay together"),
        (lambda rows, heads: sorted(rows), "the queries come first"),
        (lambda rows, heads: None, "end the function with return"),
        (["q0", "q1"], "expected a function"),
    ],
    2: [
        (lambda h, i, split, shared, card: 1, "tensors wholly"),
        (lambda h, i, split, shared, card: ceil((split + shared) / card), "does not divide its 22 heads"),
        (lambda h, i, split, shared, card: fewest(h, h, split, shared, card), "does not divide the inner width"),
        (lambda h, i, split, shared, card: fewest(i, i, split, shared, card), "but not the 22 heads"),
        (lambda h, i, split, shared, card: fewest(h, i, split + shared, 0, card), "alone need 6 GB"),
        (lambda h, i, split, shared, card: h, "fit on one card"),
        (lambda h, i, split, shared, card: fewest(h, i, split, shared, card) or None, "end the function with return"),
        (2, "expected a function"),
    ],
    3: [
        ("fp16", "hand in two things"),
        (("fp16", {"fp32": (100, 0.0), "fp16": (50, 0.004)}), "bf16 is missing"),
        (("fp16", formats(bf16=0.03)), "is a pair"),
        (("bf16", formats()), "further off, 0.032 instead of 0.004"),
        (("fp32", formats()), "twice the bytes"),
        (("int8", formats()), "is none of fp32"),
        (("fp16", formats(fp16=(100, 0.004))), "4 bytes per number"),
        (("fp16", formats(fp16=(50, 0.0), bf16=(50, 0.0))), "rounds the weights"),
        (("fp16", formats(bf16=(50, 0.0))), "rounds the weights"),
        (("fp16", formats(fp32=(100, 0.5))), "comes from the comparison"),
        (("bf16", formats(fp16=(50, 0.032), bf16=(50, 0.004))), "swapped"),
    ],
}  # fmt: skip
