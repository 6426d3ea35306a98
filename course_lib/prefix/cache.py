"""Prefixes as the cache that GPT-2 and GPT-NeoX of transformers read before a text, and the positions of the text behind them.

    cache, front = past(values, shape, dtype, device)
    model(ids, past_key_values=cache, attention_mask=torch.cat([front, mask], 1), position_ids=positions(lengths, mask))

Token t of a row stands at position P + t in training and in generation alike: GPT-2 adds the learned vector of that position, GPT-NeoX turns
queries and keys by its angle. The keys of a prefix are taken as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from course_lib.errors import UsageError


@dataclass(frozen=True)
class Shape:
    """What a prefix must agree on with its model."""

    layers: int
    heads: int
    head_size: int

    def __post_init__(self) -> None:
        if not all(isinstance(size, int) and size > 0 for size in (self.layers, self.heads, self.head_size)):
            raise ValueError(f"{self}: not a shape")

    @classmethod
    def of(cls, config: Any) -> "Shape":
        """The shape of a GPT2Config or GPTNeoXConfig."""
        heads = config.num_attention_heads
        return cls(config.num_hidden_layers, heads, config.hidden_size // heads)

    @property
    def width(self) -> int:
        """Numbers per position of a prefix."""
        return 2 * self.layers * self.heads * self.head_size

    def __str__(self) -> str:
        return f"{self.layers} layers × {self.heads} heads × {self.head_size}"


class _Fixed(DynamicLayer):  # type: ignore[misc]
    """A layer that shows its prefix to every forward pass and keeps nothing of it: a pass may run again."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return torch.cat([self.keys, key_states], -2), torch.cat([self.values, value_states], -2)


def past(
    values: Sequence[Tensor | None],
    shape: Shape,
    dtype: torch.dtype,
    device: torch.device | str,
    grows: bool = True,
) -> tuple[DynamicCache, Tensor]:
    """The cache of a batch whose row i has the prefix `values[i]` [P_i, width] or none, and the mask [B, Pmax] of its columns.

    Shorter prefixes are padded on the left (mask 0). Gradients flow back into the values. A prefix that several rows share is given as the
    same tensor object; one for all rows is not copied. With `grows` the cache keeps what the model adds, as generation needs it; without,
    it stays as it is, so that a backward pass may compute blocks again (recompute).
    """
    lengths = torch.tensor([0 if rows is None else len(rows) for rows in values], device=device)
    longest = int(lengths.max())
    mask = (torch.arange(longest, device=device) >= longest - lengths[:, None]).long()
    if longest == 0:
        return DynamicCache(), mask
    different = list({id(rows): rows for rows in values}.values())
    padded = [
        torch.zeros(longest, shape.width, dtype=dtype, device=device)
        if rows is None
        else functional.pad(rows.to(device, dtype), (0, 0, longest - len(rows), 0))
        for rows in different
    ]
    stacked = torch.stack(padded).view(len(padded), longest, shape.layers, 2, shape.heads, shape.head_size)
    layers = stacked.permute(2, 3, 0, 4, 1, 5)  # [layers, 2, different, heads, P, head size]
    if len(padded) > 1:
        place = {id(rows): index for index, rows in enumerate(different)}
        layers = layers[:, :, torch.tensor([place[id(rows)] for rows in values], device=device)]
    layers = layers.expand(-1, -1, len(values), -1, -1, -1)
    cache = DynamicCache()
    cache.layers = [_layer(keys, vals, grows) for keys, vals in layers]
    return cache, mask


def _layer(keys: Tensor, values: Tensor, grows: bool) -> DynamicLayer:
    """A layer that holds these, without the copy that its own update would make."""
    layer = DynamicLayer() if grows else _Fixed()
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values = keys, values
    return layer


def positions(prefix_lengths: Tensor, attention_mask: Tensor) -> Tensor:
    """[B, T]: the t-th real token of a row at P_row + t, whichever side is padded; padding at a place that exists.

    `prefix_lengths` [B], `attention_mask` [B, T] of the text alone.
    """
    return (attention_mask.cumsum(-1) - 1).clamp(min=0) + prefix_lengths[:, None]


def learned_positions(config: Any) -> int | None:
    """Positions that a GPT-2 has vectors for; None for GPT-NeoX, whose angles go on."""
    return int(config.max_position_embeddings) if config.model_type == "gpt2" else None


def require_room(config: Any, prefix: int, tokens: int) -> None:
    """Raises UsageError if a prefix and a text of so many tokens do not fit a model of learned positions."""
    limit = learned_positions(config)
    if limit is not None and prefix + tokens > limit:
        raise UsageError(
            f"length: a prefix of {prefix} and a text of {tokens} tokens are not allowed: together {prefix + tokens}, the model has {limit} positions"
        )
