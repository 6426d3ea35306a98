"""Other right answers, and wrong ones, to the exercises of chapter 6."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from course_lib.prefix import writers
from torch import Tensor, nn

from tests.exercises.answers.folded import Folded

FOLDED = Folded("06_prefix_tuning", torch=torch, nn=nn)
COURSE, changed = FOLDED.names, FOLDED.changed
behind = partial(changed, "with_prefix_ours")
lora = COURSE["lora_ours"]


def labels(prompt: list[int], target: list[int], end: int) -> tuple[list[int], list[int]]:
    text = prompt + target + [end]
    return text[:-1], [-100 if at < len(prompt) else text[at] for at in range(1, len(text))]


def exact(logits: Tensor, labels: Tensor) -> list[bool]:
    hits = [(row.argmax(-1) == wanted)[wanted >= 0] for row, wanted in zip(logits, labels)]
    return [bool(row.all()) for row in hits]


def starting(a: float, b: float, trained: bool = True) -> Any:
    """LoRA whose A and B start at these values."""

    def fill(*given: Any) -> list[Tensor]:
        A, B = lora(*given)
        with torch.no_grad():
            return [A.fill_(a).requires_grad_(trained), B.fill_(b)]

    return fill


def without_effect(layer: nn.Linear, inputs: int, outputs: int, rank: int) -> list[Tensor]:
    return [nn.Parameter(torch.randn(rank, inputs)), nn.Parameter(torch.zeros(outputs, rank))]


def changed_letters(number: int) -> str:
    """The key with its first letters exchanged."""
    right = writers.key()
    return right[:number].translate(str.maketrans("dt", "td")) + right[number:]


# length → for each held-out pair, the share of seeds that are right: 50 choose the best length, 50 judge
SHARES = {
    length: 2 * ([1.0] * right + [0.0] * (50 - right))
    for length, right in {1: 19, 2: 20, 4: 25, 5: 33, 8: 32, 20: 33, 40: 34}.items()
}
# The best of the choosing pairs is no better than 2 in the judging ones.
SHARES[30] = [1.0] * 70 + [0.0] * 30
POLITE = {0.0: 0.5, 1.0: 0.97}
# What the solution of exercise 7 takes from the notebook.
NAMES: dict[str, Any] = {
    **COURSE,
    "plain": SimpleNamespace(train=[]),
    "cache_values": lambda model, length: torch.ones(length, 4),
    **dict.fromkeys(("end", "model", "rate")),
    **dict.fromkeys(("learn", "partial", "batches"), lambda *_: None),
}
RIGHT: dict[int, list[Any]] = {
    2: [labels],
    3: [exact, lambda logits, labels: torch.tensor(exact(logits, labels))],
    5: [writers.key(), list(writers.key()), changed_letters(2)],
    6: [(np.int64(8), np.array([4, 8, 1])), (torch.tensor(20), torch.tensor([1, 2, 20])), (2, [2, 20, 30])],
    7: [torch.ones(20, 4), nn.Parameter(torch.ones(3, 4))],
}  # fmt: skip
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda model, rows, ids: model(ids).logits, "the prefix has no effect"),
        (
            behind(("torch.arange(len(rows), len(rows) + ids.shape[1]", "torch.arange(ids.shape[1]")),
            "begin at position 0",
        ),
        (behind(("0, 4)", "0, 4).flip(1)")), "changed places"),
        (
            behind(("config.num_hidden_layers, 2", "2, config.num_hidden_layers"), ("permute(1, 2", "permute(2, 1")),
            "layers first",
        ),
        (
            behind(("config.num_attention_heads, -1", "-1, config.num_attention_heads"), ("3, 0, 4)", "4, 0, 3)")),
            "head by head",
        ),
        (behind(("rows.to(", "(rows / 2).to(")), "from the library"),
        (behind(("rows.to(", "rows.detach().to(")), "no gradient reaches the rows"),
        (behind((".logits", ".logits[:, -1]")), "expected the shape [2, 5, 11], got [2, 11]"),
    ],
    2: [
        (lambda p, t, e: ([*p, *t], [*p[1:], *t, e]), "is not learned"),
        (lambda p, t, e: ([*p, *t, e], [-100] * (len(p) - 1) + [*t, e]), "does not read the end"),
        (lambda p, t, e: ([*p, *t], [-100] * len(p) + t), "is the next token"),
    ],
    3: [
        (lambda logits, labels: (logits.argmax(-1) == labels).all(-1).tolist(), "where it is -100 any token may be"),
        (lambda logits, labels: exact(logits[:, :-1], labels[:, 1:]), "the next token already"),
        (lambda logits, labels: [True] * 3, "makes the whole answer wrong"),
        (lambda logits, labels: exact(logits[:, :-2], labels[:, :-2]), "it must stop there"),
        (lambda logits, labels: (logits.argmax(-1) == labels) | (labels == -100), "one answer for each of 3 pairs"),
    ],
    4: [
        (lambda layer, n, m, rank: lora(layer, m, n, rank), "of the shapes"),
        (starting(1, 1), "the layer must start as it was"),
        (starting(0, 0), "A starts at random"),
        (starting(1, 0, False), "make each an nn.Parameter"),
        (without_effect, "replace layer.forward"),
        (changed("lora_ours", ("2 * (x", "1 * (x")), "the factor 2"),
        (changed("lora_ours", ("2 * (x", "3 * (x")), "from peft"),
    ],
    5: [
        (changed_letters(3), "7 of 10"),
        (writers.key()[:9], "hand in 10 letters"),
        (changed_letters(0).upper(), "each d or t"),
    ],
    6: [
        (5, "The task: choose the shortest length"),
        ((8, [8, 20, 20]), "at least 3"),
        ((20, [20, 21, 22]), "4 times the shortest"),
        ((4, [1, 8, 20]), "not among the lengths"),
        ((4, [1, 4, 8]), "the interval excludes 0"),
        ((40, [1, 20, 40]), "20 positions are shorter"),
    ],
    7: [
        (torch.zeros(20, 4), "become polite"),
        ("rows", "cannot be judged"),
    ],
}  # fmt: skip
