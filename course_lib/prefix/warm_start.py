"""A prefix that begins where real tokens are: the keys and values that the frozen model itself computes for some ids."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from course_lib.errors import UsageError
from course_lib.prefix.cache import require_room
from course_lib.prefix.encoder import PrefixEncoder


@torch.no_grad()
def cache_values(model: Any, tokens: int | Sequence[int]) -> Tensor:
    """[P, 2·layers·heads·head size] fp32: the model's cache of these ids, or of the ids 0 to P-1.

    As a prefix they stand for the tokens exactly: a GPT-NeoX stores its keys turned to their positions, and its cache is not turned again.
    Raises UsageError for ids that the model does not know and for more than its positions.
    """
    ids = list(range(tokens)) if isinstance(tokens, int) else list(tokens)
    rows = model.config.vocab_size
    if not ids or not all(0 <= number < rows for number in ids):
        raise UsageError(
            f"length: a warm start from the ids {ids[:1]} to {ids[-1:]} is not allowed: the model knows 0 to {rows - 1}"
        )
    require_room(model.config, len(ids), 0)
    cache = model(torch.tensor([ids], device=model.device), use_cache=True).past_key_values
    stacked = torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in cache.layers])
    return stacked.permute(3, 0, 1, 2, 4).reshape(len(ids), -1).float()  # from [layer, k/v, head, P, d]


def fit(
    encoder: PrefixEncoder, target: Tensor, steps: int = 200, lr: float = 1e-4, weight_decay: float = 0.01
) -> list[float]:
    """Trains the encoder to give `target`: mean squared error, full batch, AdamW, biases without decay. Returns the loss before each step.

    An encoder without MLP takes the target as it is, in no step: an embedding drawn from N(0, 1) would come nowhere near it in 200.
    """
    if not encoder.reparameterize:
        with torch.no_grad():
            encoder.prefix_wte.weight.copy_(target)
        return []
    groups = [
        {"params": [p for name, p in encoder.named_parameters() if ("bias" in name) == bias], "weight_decay": decay}
        for bias, decay in ((False, weight_decay), (True, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr)
    losses = []
    for _ in range(steps):
        loss = functional.mse_loss(encoder(), target)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.detach())
    return [float(loss) for loss in losses]
