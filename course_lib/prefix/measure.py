"""Measurements of a prefix or another trained model: exact matches, and memory of a training step."""

from collections.abc import Callable, Sequence
from math import nan
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.checkpoints.quiet import quiet
from course_lib.prefix.samples import IGNORED, TokenRow, collate


@torch.no_grad()
def exact_matches(model: Any, rows: Sequence[TokenRow], batch_size: int = 32) -> float:
    """Return the share of rows whose learned part greedy decoding returns exactly (NaN without rows)."""
    model.eval()
    right = 0
    for start in range(0, len(rows), batch_size):
        batch = collate(rows[start : start + batch_size])
        labels = batch["labels"].to(model.base.device)
        # Suppress the transformers warning that the ids include the padding id.
        with quiet():
            predicted = model(batch["input_ids"].to(model.base.device)).argmax(-1)
        right += int(((predicted == labels) | (labels == IGNORED)).all(-1).sum())
    return right / len(rows) if rows else nan


def kept_for_backward(model: nn.Module, forward: Callable[[], Tensor]) -> tuple[Tensor, int]:
    """Return the result of a forward pass, and the size of what it keeps for the backward pass [bytes]."""
    # The model's own parameters and buffers are left out.
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())}
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = forward()
    return result, sum(sizes.values())
