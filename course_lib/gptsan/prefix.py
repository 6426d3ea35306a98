"""Token types that mark the prefix, whose tokens attend to each other in both directions."""

import torch
from torch import Tensor


def prefix_types(num_input: Tensor, length: int, spout: bool) -> Tensor:
    """Return the token types [B, length] for the model: 1 in the prefix, 0 after it.

    `num_input` [B] counts the positions before SEG, the token that ends the prefix. As in the original code, it is in
    key/value slots, and the spout is the first slot. With a spout, the prefix is one token shorter.
    """
    positions = torch.arange(length, device=num_input.device)
    return (positions < num_input[:, None] - int(spout)).long()
