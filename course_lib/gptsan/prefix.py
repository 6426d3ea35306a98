"""Token types that mark the prefix, the tokens that attend to each other in both directions.

Training and generation use the same function.
"""

import torch
from torch import Tensor


def prefix_types(num_input: Tensor, length: int, spout: bool) -> Tensor:
    """The token types [B, length] that the model takes: 1 in the prefix, 0 after it.

    The original counts the length of the prefix in key/value slots, and the spout is the first slot. So with a spout
    the prefix is one token shorter than `num_input`.

    Args:
        num_input: [B], the number of positions before SEG, the token that ends the prefix.
        length: number of tokens in a sequence.
        spout: whether the model gets a spout vector.
    """
    positions = torch.arange(length, device=num_input.device)
    return (positions < num_input[:, None] - int(spout)).long()
