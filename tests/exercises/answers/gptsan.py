"""Right and wrong answers to the exercises of chapter 5."""

from types import SimpleNamespace
from typing import Any

import torch
from course_lib.exercises import gptsan
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot


def route_ours(
    x: Tensor, router: Tensor, factor: float, least: int = 4, cut: Any = int, dim: int = -1, gated: bool = False
) -> Any:
    """The router, with another minimum, rounding or dimension, or with no gate where there is no room."""
    probability = (x @ router.T).softmax(dim)
    gate, expert = probability.max(-1)
    capacity = max(least, cut(len(x) * factor / len(router)))
    chosen = one_hot(expert, len(router))
    room = (chosen.cumsum(0) * chosen).sum(-1) <= capacity
    return expert, gate * room if gated else gate, room


def full(x: Tensor, router: Tensor, factor: float) -> Any:
    """Room for everybody."""
    expert, gate, room = route_ours(x, router, factor)
    return expert, gate, torch.ones_like(room)


def scores(x: Tensor, router: Tensor, factor: float) -> Any:
    """The scores in place of the gate."""
    expert, _, room = route_ours(x, router, factor)
    return expert, (x @ router.T).max(-1).values, room


def switch_ours(x, expert, gate, room, experts, bypass, norm, *, full=False, gated=True, tanh=True) -> Any:
    """The switch layer, with room for everybody, without the gate or without the tanh."""
    computed = torch.zeros_like(x)
    for number, network in enumerate(experts):
        served = (expert == number) & (room | full)
        computed[served] = (gate[served, None] if gated else 1) * network(x[served])
    skip = bypass(x)
    return x + norm(computed + (skip.tanh() if tanh else skip))


def slots_ours(
    spout: Tensor, matrices: list[Tensor], layers: int, heads: int, *, tanh: bool = True, last: int = 1
) -> Any:
    """The spout network, without tanh or with one after the last matrix."""
    for matrix in matrices[: len(matrices) - last]:
        spout = (matrix @ spout).tanh() if tanh else matrix @ spout
    if last:
        spout = matrices[-1] @ spout
    keys, values = spout.view(layers, 2, heads, -1).unbind(1)
    return keys, values


def batch_loss_ours(model: Any, batch: Any, told: bool = True, balance: bool = True, shift: int = 0) -> Tensor:
    """The loss, without class or balance loss, or with the targets shifted once more."""
    spout = torch.eye(model.config.d_spout)[batch["i"]] if told else None
    output = model(batch["x"], spout=spout, use_cache=False)
    logits, y = output.logits[:, : batch["x"].shape[1] - shift], batch["y"][:, shift:]
    loss = cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-1)
    return loss + output.aux_loss if balance else loss


def _base() -> dict[str, Tensor]:
    return {"model.spout.0.weight": torch.zeros(2), "model.blocks.0.norm.weight": torch.ones(2)}


def trained(spout: float, norm: float = 1.0, share: float = 0.6, gain: float = 0.1) -> Any:
    """A model with one trained tensor or two, how well it obeys, and what the learner's class saves."""
    weights = {"model.spout.0.weight": torch.full((2,), spout), "model.blocks.0.norm.weight": torch.full((2,), norm)}
    return SimpleNamespace(model=SimpleNamespace(state_dict=lambda: weights), share=share, gain=gain)


# What the checks measure.
MEASURED = {
    "_base": _base,
    "obedience": lambda writer: writer.share,
    "_read": lambda writer, texts: torch.tensor([[0.5], [0.4], [0.4 - writer.gain]]).expand(3, len(texts)),
}
TEXTS = [f"{number}日は雨でした。" for number in range(100)]
NAMES = {
    "route_ours": route_ours,
    "switch_ours": switch_ours,
    "slots_ours": slots_ours,
    "batch_loss_ours": batch_loss_ours,
    "alone": trained(1.0),
    "exercises": gptsan,
    "writer": trained(1.0),
    "texts": TEXTS,
}
RIGHT: dict[int, list[Any]] = {
    1: [route_ours],
    2: [switch_ours],
    3: [slots_ours],
    4: [batch_loss_ours],
    5: [(trained(1.0), "yes"), (trained(1.0, share=0.97), "no")],
    6: [(trained(1.0), TEXTS)],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda x, r, f: route_ours(x, r, f)[0], "three tensors"),
        (full, "first come, first served"),
        (scores, "the softmax is missing"),
        (lambda x, r, f: route_ours(x, r, f, gated=True), "keeps its gate"),
        (lambda x, r, f: route_ours(x, r, f, cut=round), "round down"),
        (lambda x, r, f: route_ours(x, r, f, least=1), "no capacity is below 4"),
    ],
    2: [
        (lambda *a: switch_ours(*a, full=True), "a token without room must get 0"),
        (lambda *a: switch_ours(*a, gated=False), "the gate is missing"),
        (lambda *a: switch_ours(*a, tanh=False), "or its tanh"),
        (lambda *a: switch_ours(*a) - a[0], "add x after the norm"),
    ],
    3: [
        (lambda *a: slots_ours(*a, tanh=False), "the tanh is missing"),
        (lambda *a: slots_ours(*a)[::-1], "exchanged"),
        (lambda s, m, n, h: (m[-1] @ s).view(n, 2, h, -1).unbind(1), "differ from the library's"),
        (lambda s, m, n, h: slots_ours(s, m, n, h)[0], "return two tensors"),
    ],
    4: [
        (lambda m, b: batch_loss_ours(m, b, told=False), "did not get the class"),
        (lambda m, b: batch_loss_ours(m, b, balance=False), "the balance loss is missing"),
        (lambda m, b: batch_loss_ours(m, b, shift=1), "shifted already"),
        (lambda m, b: batch_loss_ours(m, b).item(), "gradients"),
    ],
    5: [
        ((trained(1.0), "no"), "60%"),
        ((trained(0.0), "yes"), "run the training first"),
        ((trained(1.0, norm=2.0), "yes"), "train the spout network only"),
    ],
    6: [
        ((trained(1.0), TEXTS[:50]), "at least 100"),
        ((trained(1.0, norm=2.0), TEXTS), "must stay frozen"),
        ((trained(1.0, gain=0.0), TEXTS), "Train longer"),
    ],
}
