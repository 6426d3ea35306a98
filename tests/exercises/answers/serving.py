"""Other right answers, and wrong ones, to the exercises of chapter 7."""

from codecs import getincrementaldecoder
from typing import Any

import numpy as np
import torch
from course_lib.exercises import serving

from tests.exercises.answers.folded import Folded

FOLDED = Folded("07_fastertransformer_conversion")
COURSE, changed = FOLDED.names, FOLDED.changed
convert, find, pieces, step = (COURSE[name] for name in ("convert", "find", "pieces", "step"))


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
    whole = torch.cat([part.reshape(hidden, 3, -1) for part in convert(weight, heads, 1, family)])
    return [part.reshape(hidden, 3, -1) for part in whole.reshape(hidden, -1).chunk(ranks, dim=1)]


def first(wrong: Any) -> Any:
    """An answer to exercise 2 that names the first module whose outputs are wrong by a rule of its own."""

    def answer(right: Any, served: Any) -> str | None:
        return next((name for name in right if wrong(right[name], served[name])), None)

    return answer


def last(right: Any, served: Any) -> str | None:
    return first(lambda one, other: not (one - other).norm() <= 0.01 * one.norm())(
        dict(reversed(right.items())), served
    )


def by_decoder(tokens: list[bytes], stop: str) -> list[str]:
    """An answer to exercise 3 with Python's decoder of a stream."""
    decoder, text = getincrementaldecoder("utf8")(), ""
    sent: list[str] = []
    for number, token in enumerate(tokens, 1):
        text += decoder.decode(token)
        before, found, _ = text.partition(stop)
        if found:
            return [*sent, before]
        held = next((n for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n])), 0)
        cut = len(text) if number == len(tokens) else len(text) - held
        sent.append(text[:cut])
        text = text[cut:]
    return sent


def each_alone(tokens: list[bytes], stop: str) -> list[str]:
    return [token.decode("utf8", "replace") for token in tokens]


def all_so_far(tokens: list[bytes], stop: str) -> list[str]:
    return [b"".join(tokens[: number + 1]).decode("utf8", "ignore") for number in range(len(tokens))]


def without_stop(tokens: list[bytes], stop: str) -> list[str]:
    return by_decoder(tokens, "\0")


def stop_too_late(tokens: list[bytes], stop: str) -> list[str]:
    """Sends the beginning of a stop string."""
    decoder, text = getincrementaldecoder("utf8")(), ""
    sent: list[str] = []
    for token in tokens:
        new = decoder.decode(token)
        if stop in text + new:
            return [*sent, (text + new)[len(text) : max(len(text), (text + new).index(stop))]]
        sent.append(new)
        text += new
    return sent


def kept_back(tokens: list[bytes], stop: str) -> list[str]:
    """Keeps at the end what waits."""
    return by_decoder([*tokens, b""], stop)[: len(tokens)]


def first_when_empty(waiting: Any, running: Any, slots: int) -> Any:
    """Static batching."""
    return step(waiting, running, slots) if not running else (waiting, *step([], running, slots)[1:])


def late(waiting: Any, running: Any, slots: int) -> Any:
    """Jobs join after the step."""
    _, running, done = step([], running, slots)
    free = slots - len(running)
    return waiting[free:], running + waiting[:free], done


def last_come(waiting: Any, running: Any, slots: int) -> Any:
    queue, running, done = step(waiting[::-1], running, slots)
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
    return serving.steps(LENGTHS, slots, of is step)


NAMES = {
    **COURSE,
    "measure": measure,
    "made": LENGTHS,
    "steps_of": steps_of,
    "static": None,
}
FEWEST = next(n for n in range(1, 17) if steps_of(step, n) <= steps_of(None, 16))
RIGHT: dict[int, list[Any]] = {
    1: [by_einsum],
    2: [first(lambda one, other: not (one - other).std() / one.std() < 0.05)],
    3: [by_decoder],
    5: [(FEWEST, LENGTHS), (np.int64(FEWEST), np.array(LENGTHS))],
    6: [(np.str_("fp16"), measure), ("fp16", of_fp16_base)],
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
        (first(lambda one, other: not torch.equal(one, other)), "compare the length of the difference"),
        (first(lambda one, other: ((one - other).abs() > 0.05 * one.abs()).any()), "compare the length of the diff"),
        (first(lambda one, other: not (one - other).abs().max() < 0.3), "small outputs have small errors"),
        (first(lambda one, other: not abs(one.norm() - other.norm()) < 0.01 * one.norm()), "same sum and norm"),
        (first(lambda one, other: (one - other).norm() > 0.01 * one.norm()), "each comparison with it is False"),
        (last, "name the first wrong module"),
    ],
    3: [
        (each_alone, "a character goes out with its last byte"),
        (all_so_far, "whole characters go out with their token"),
        (without_stop, "the text ends in front of the stop string"),
        (stop_too_late, "it may still become the whole"),
        (kept_back, "with the last token, what waited goes out"),
    ],
    4: [
        (first_when_empty, "as soon as a slot is free"),
        (late, "each job in a slot writes one token"),
        (last_come, "each job in a slot"),
        (lambda waiting, running, slots: step(waiting, running, slots + 1), "the third has to wait"),
    ],
    5: [
        ((16, LENGTHS), "slots are enough"),
        ((FEWEST - 1, LENGTHS), "too few"),
        ((8, [3, 4]), "at least 20 texts"),
        (8, "The task: find the fewest slots"),
    ],
    6: [
        ("fp16", "The task: choose the number format"),
        (("fp32", measure), "half is allowed"),
        (("bf16", measure), "0.032 instead of 0.004"),
        (("bf16", of_fp16_base), "instead of 0 nats"),
    ],
}  # fmt: skip
