"""Right and wrong answers to the exercises of chapter 4's second half."""

import struct
from math import cos, pi
from typing import Any

import numpy as np
from course_lib.exercises import pretrain

from tests.exercises.answers.forms import NUMBER, in_forms


def index(content: bytes, order: str = "<", start: int = 34, skip: int = 12) -> tuple[int, list[int], list[int]]:
    """Reads an .idx with another byte order, with sizes elsewhere, or with pointers of another width."""
    _, _, code, sequences, entries = struct.unpack_from(f"{order}9sQBQQ", content)
    sizes = struct.unpack_from(f"{order}{sequences}i", content, start)
    return code, list(sizes), list(struct.unpack_from(f"{order}{entries}q", content, start + skip * sequences))


def by_numpy(content: bytes) -> Any:
    sequences, entries = np.frombuffer(content, "<u8", 2, 18)
    documents = np.frombuffer(content, "<i8", int(entries), 34 + 12 * int(sequences))
    return np.uint8(content[17]), np.frombuffer(content, "<i4", int(sequences), 34), documents


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


RIGHT: dict[int, list[Any]] = {
    1: [index, by_numpy, lambda c: list(by_numpy(c)), lambda c: [x.tolist() for x in by_numpy(c)],
        lambda c: (c[17], tuple(index(c)[1]), tuple(index(c)[2]))],
    2: in_forms(memory, NUMBER),
    3: in_forms(capped, NUMBER),
}  # fmt: skip
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda c: index(c, order=">"), "little-endian"),
        (lambda c: index(c, order=""), "little-endian"),
        (lambda c: index(c, start=0), "header of 34 bytes"),
        (lambda c: index(c, skip=8), "8 bytes of pointer"),
        (lambda c: (c[17], [size - 1 for size in index(c)[1]], index(c)[2]), "is counted in them"),
        (lambda c: (c[17], index(c)[1], range(len(index(c)[1]) + 1)), "two sequences"),
        (lambda c: None, "got None"),
        (pretrain.read_index(pretrain._Index(8, 2, [[3]])), "expected a function"),
    ],
    2: [
        (lambda p, n, stage: 16 * p / n, "shards nothing"),
        (lambda p, n, stage: 12 * p, "not all"),
        (lambda p, n, stage: memory(p, n, stage and min(3, stage + 1)), "optimizer states alone"),
        (lambda p, n, stage: 4 * p + 12 * p / (n if stage else 1), "gradients too"),
        (lambda p, n, stage: memory(p, n, 3 if stage >= 2 else stage), "gradients too"),
        (lambda p, n, stage: memory(p, n, min(stage, 2)), "shards all three"),
    ],
    3: [
        (lambda s, w, d, high, low: rate(s, w, d, high, low, -1), "count from 1"),
        (lambda s, w, d, high, low: rate(s, w, d, high, low) if s <= w else rate(s, 0, d, high, low), "after the warm-up"),
        (lambda s, w, d, high, low: rate(s, w, d, *(high, low) if s <= w else (low, high)), "1 - cos would rise"),
        (lambda s, w, d, high, low: high * min(s / w, (d - s) / (d - w)), "1 - cos would rise"),
        (lambda s, w, d, high, low: rate(s, w, d, high, 0.0), "falls to low, not to 0"),
        (rate, "stays at low"),
    ],
}  # fmt: skip
