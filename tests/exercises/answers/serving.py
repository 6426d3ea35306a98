"""Right and wrong answers to the exercises of chapter 7."""

from typing import Any

import numpy as np
import torch
from course_lib.exercises import serving


def by_einsum(weight: torch.Tensor, heads: int, ranks: int, family: str) -> Any:
    hidden = min(weight.shape)
    if family == "gptneox":
        whole = weight.reshape(heads, 3, -1, hidden).permute(3, 1, 0, 2)
    else:
        whole = weight.reshape(hidden, 3, heads, -1)
    return [whole.reshape(hidden, 3, ranks, -1)[:, :, rank].numpy() for rank in range(ranks)]


def parts(order: Any) -> Any:
    """An answer that brings the weight into an order, and splits it rightly."""

    def answer(weight: torch.Tensor, heads: int, ranks: int, family: str) -> Any:
        hidden = min(weight.shape)
        return order(weight, heads, hidden, family).reshape(hidden, 3, hidden).chunk(ranks, dim=2)

    return answer


def unordered(weight: torch.Tensor, heads: int, hidden: int, family: str) -> torch.Tensor:
    return weight if family == "gpt" else weight.T


def unturned(weight: torch.Tensor, heads: int, hidden: int, family: str) -> torch.Tensor:
    return weight if family == "gpt" else weight.reshape(heads, 3, -1, hidden).transpose(0, 1)


def always_reordered(weight: torch.Tensor, heads: int, hidden: int, family: str) -> torch.Tensor:
    return unordered(weight, heads, hidden, family).reshape(hidden, heads, 3, -1).transpose(1, 2)


def flat_split(weight: torch.Tensor, heads: int, ranks: int, family: str) -> Any:
    hidden = min(weight.shape)
    whole = torch.cat([part.reshape(hidden, 3, -1) for part in serving.convert(weight, heads, 1, family)])
    return [part.reshape(hidden, 3, -1) for part in whole.reshape(hidden, -1).chunk(ranks, dim=1)]


def effect(damage: Any) -> tuple[list[str], float]:
    """The measurement of exercise 2 on eight numbers."""
    numbers = np.arange(8, dtype="<f4")
    changed = np.asarray(damage(numbers.copy()))
    if changed.nbytes != numbers.nbytes:
        return [f"short: x.bin: {changed.nbytes} bytes, expected {numbers.nbytes}"], 0.0
    return [], float(np.abs(changed - numbers).mean())


def first_when_empty(waiting: Any, running: Any, slots: int) -> Any:
    """Static batching."""
    return serving.step(waiting, running, slots) if not running else (waiting, *serving.step([], running, slots)[1:])


def late(waiting: Any, running: Any, slots: int) -> Any:
    """Jobs join after the step."""
    _, running, done = serving.step([], running, slots)
    free = slots - len(running)
    return waiting[free:], running + waiting[:free], done


def last_come(waiting: Any, running: Any, slots: int) -> Any:
    queue, running, done = serving.step(waiting[::-1], running, slots)
    return queue[::-1], running, done


def measure(name: str) -> tuple[int, float]:
    """The notebook's experiment: size and change of the logits in a number format."""
    return {"fp32": (100, 0.0), "fp16": (50, 0.004), "bf16": (50, 0.032)}[name]


def of_fp16_base(name: str) -> Any:
    """The same for a base that is stored in fp16, as tensors."""
    size, change = measure(name)
    return torch.tensor([size, change * (name == "bf16")])


# 16 texts at a time, static: 9 + 9 + 9 steps; continuous: 13 slots need 27, 12 need 28
LENGTHS = [5, 9, 4, 7, 5, 6, 8, 4, 6, 5, 9, 4, 7, 6, 5, 8] * 3


def steps_of(of: Any, slots: int) -> int:
    return serving.steps(LENGTHS, slots, of is serving.step)


NAMES = {"measure": measure, "lengths": LENGTHS, "steps_of": steps_of, "step": serving.step, "static": None}
FEWEST = next(n for n in range(1, 17) if steps_of(serving.step, n) <= steps_of(None, 16))
RIGHT: dict[int, list[Any]] = {
    1: [by_einsum],
    2: [lambda numbers: numbers[::-1], lambda numbers: np.roll(numbers, 3)],
    3: [serving.step],
    4: [(FEWEST, LENGTHS), (np.int64(FEWEST), np.array(LENGTHS))],
    5: [("fp16", measure), (np.str_("fp16"), measure), ("fp16", of_fp16_base)],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (parts(unordered), "still come head by head"),
        (parts(unturned), "transpose first"),
        (parts(always_reordered), "only split"),
        (flat_split, "make three axes before"),
        (lambda weight, heads, ranks, family: weight.chunk(ranks), "expected one part [8, 3, 4]"),
    ],
    2: [
        (lambda numbers: numbers[:-1], "inspect finds it: short"),
        (lambda numbers: numbers.astype("<f2"), "inspect finds it: short"),
        (lambda numbers: numbers + 1e-3, "only 0.00 nats"),
    ],
    3: [
        (first_when_empty, "as soon as a slot is free"),
        (late, "each job in a slot writes one token"),
        (last_come, "each job in a slot"),
        (lambda waiting, running, slots: serving.step(waiting, running, slots + 1), "the third has to wait"),
    ],
    4: [
        ((16, LENGTHS), "slots are enough"),
        ((FEWEST - 1, LENGTHS), "too few"),
        ((8, [3, 4]), "at least 20 texts"),
        (8, "The task: find the fewest slots"),
    ],
    5: [
        ("fp16", "The task: choose the number format"),
        (("fp32", measure), "half is allowed"),
        (("bf16", measure), "0.032 instead of 0.004"),
        (("bf16", of_fp16_base), "instead of 0 nats"),
    ],
}  # fmt: skip
