"""Token types that mark the prefix, whose tokens attend to each other in both directions.

Training and generation use the same function.
"""

import torch
from torch import Tensor


def prefix_types(num_input: Tensor, length: int, spout: bool) -> Tensor:
    """Return the token types [B, length] for the model: 1 in the prefix, 0 after it.

    The original code counts the prefix length in key/value slots, and the spout is the first slot. With a spout, the
    prefix is therefore one token shorter than `num_input`.

    Args:
        num_input: [B], number of positions before SEG, the token that ends the prefix.
        length: Number of tokens in each sequence.
        spout: Whether the model receives a spout vector.
    """
    positions = torch.arange(length, device=num_input.device)
    return (positions < num_input[:, None] - int(spout)).long()
