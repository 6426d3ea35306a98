"""Measurements of a prefix or another trained model: exact answers and held-out loss."""

from collections.abc import Callable, Sequence
from statistics import fmean

import torch
from torch import Tensor

from course_lib.checkpoints.quiet import quiet
from course_lib.prefix.samples import IGNORED, Example, loss, padded


@torch.no_grad()
def right(
    forward: Callable[[Tensor], Tensor],
    examples: Sequence[Example],
    device: torch.device | str = "cpu",
    batch_size: int = 32,
) -> list[bool]:
    """Return for each example whether greedy decoding gives its learned part; `forward` returns logits for ids.

    Greedy decoding does so if and only if each learned token is the most probable one behind those before it.
    """
    answers: list[bool] = []
    for start in range(0, len(examples), batch_size):
        ids, labels = (tensor.to(device) for tensor in padded(examples[start : start + batch_size]))
        # Suppress the transformers warning that the ids include the padding id.
        with quiet():
            predicted = forward(ids).argmax(-1)
        answers += ((predicted == labels) | (labels == IGNORED)).all(-1).tolist()
    return answers


@torch.no_grad()
def held_out_loss(
    forward: Callable[[Tensor], Tensor], examples: Sequence[Example], device: torch.device | str = "cpu"
) -> float:
    """Return the mean loss over the targets of all examples [nats per token]; `forward` returns logits for ids."""
    with quiet():
        batches = [[tensor.to(device) for tensor in padded([each])] for each in examples]
        losses = [loss(forward(ids), labels).item() for ids, labels in batches]
        return fmean(losses, [int((labels != IGNORED).sum()) for _, labels in batches])
