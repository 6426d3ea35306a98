"""Other right answers, and wrong ones, to the exercises of chapter 5."""

from types import SimpleNamespace
from typing import Any

import torch
from course_lib.exercises import gptsan
from torch import Tensor

from tests.exercises.answers.folded import Folded

FOLDED = Folded("05_gptsan_extra_stage")
COURSE, changed = FOLDED.names, FOLDED.changed


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
NAMES = {**COURSE, "alone": trained(1.0), "exercises": gptsan, "writer": trained(1.0), "texts": TEXTS}
RIGHT: dict[int, list[Any]] = {
    5: [(trained(1.0, share=0.97), "no")],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (changed("route_ours", ("return expert, gate, place <= capacity", "return expert")), "three tensors"),
        (changed("route_ours", ("place <= capacity", "place > 0")), "first come, first served"),
        (
            changed("route_ours", ("return expert, gate", "return expert, (x @ router.T).max(-1).values")),
            "the softmax is missing",
        ),
        (changed("route_ours", ("return expert, gate", "return expert, gate * (place <= capacity)")), "keeps its gate"),
        (changed("route_ours", ("int(len", "round(len")), "round down"),
        (changed("route_ours", ("max(4", "max(1")), "no capacity is below 4"),
    ],
    2: [
        (changed("switch_ours", (" & fits", "")), "a token that does not fit must get 0"),
        (changed("switch_ours", ("gate[served, None] * ", "")), "the gate is missing"),
        (changed("switch_ours", (".tanh()", "")), "or its tanh"),
        (changed("switch_ours", ("x + norm", "norm")), "add x after the norm"),
    ],
    3: [
        (changed("slots_ours", (".tanh()", "")), "the tanh is missing"),
        (changed("slots_ours", ("return keys, values", "return values, keys")), "exchanged"),
        (changed("slots_ours", ("spout = (matrix @ spout).tanh()", "pass")), "from the library"),
        (changed("slots_ours", ("return keys, values", "return keys")), "return two tensors"),
    ],
    4: [
        (changed("batch_loss_ours", ("spout=spout", "spout=None")), "did not get the class"),
        (changed("batch_loss_ours", (" + output.aux_loss", "")), "the balance loss is missing"),
        (
            changed(
                "batch_loss_ours", ("output.logits", "output.logits[:, :-1]"), ("y.flatten()", "y[:, 1:].flatten()")
            ),
            "shifted already",
        ),
        (lambda model, batch: COURSE["batch_loss_ours"](model, batch).item(), "gradients"),
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
