"""Warm start for a prefix, based on the keys and values that the frozen model computes for real tokens."""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from course_lib.errors import UsageError
from course_lib.generation.prefix_cache import require_positions
from course_lib.prefix.encoder import PrefixEncoder
from course_lib.training import quick
from course_lib.training.settings import OptimizerConfig, RateConfig


@torch.no_grad()
def cache_values(model: Any, tokens: int | Sequence[int]) -> Tensor:
    """Return the key/value cache of some ids (a number P: 0 to P-1) as fp32 prefix rows [P, width]."""
    ids = list(range(tokens)) if isinstance(tokens, int) else list(tokens)
    rows = model.config.vocab_size
    if not ids or min(ids) < 0 or max(ids) >= rows:
        raise UsageError(f"length: a warm start from the ids {ids[:1]} to {ids[-1:]}; the model knows 0 to {rows - 1}")
    require_positions(model.config, len(ids), 0)
    cache = model(torch.tensor([ids], device=model.device), use_cache=True).past_key_values
    stacked = torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in cache.layers])
    # `stacked` has shape [layer, key/value, head, P, head size].
    return stacked.permute(3, 0, 1, 2, 4).reshape(len(ids), -1).float()


def fit(
    encoder: PrefixEncoder, target: Tensor, steps: int = 200, lr: float = 1e-4, weight_decay: float = 0.01
) -> list[float]:
    """Train the encoder to output `target` [P, width], or copy it without an MLP; return the error of each step."""
    if not encoder.reparameterize:
        with torch.no_grad():
            encoder.prefix_wte.weight.copy_(target)
        return []
    optimizer = OptimizerConfig(weight_decay=weight_decay, grad_clip=0, lr=RateConfig(max=lr, min=lr, warmup_rate=0))
    return quick.train(encoder, lambda _: functional.mse_loss(encoder(), target), repeat(None), optimizer, steps)
