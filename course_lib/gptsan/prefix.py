"""Which tokens see each other in both directions: one rule for training and for generation."""

import torch
from torch import Tensor


def prefix_types(num_input: Tensor, length: int, spout: bool) -> Tensor:
    """The token types [B, length] of the model, 1 at the prefix, of `num_input` [B], the positions before SEG.

    The original counts the prefix in slots of its memory, of which the spout is the first: with a spout the last of these
    positions is outside.
    """
    positions = torch.arange(length, device=num_input.device)
    return (positions < num_input[:, None] - int(spout)).long()
