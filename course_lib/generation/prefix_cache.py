"""Prefixes as the transformers key/value cache for GPT-2 and GPT-NeoX, and position ids for the texts that follow them.

    cache, front = past(values, shape, dtype, device)
    model(ids, past_key_values=cache, attention_mask=torch.cat([front, mask], 1), position_ids=positions(lengths, mask))

In training and generation, token t of a sequence has position P + t, where P is the length of the prefix. GPT-2 adds
the learned embedding for that position; GPT-NeoX rotates queries and keys by its angle. Prefix keys are used as they
are, without rotation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from course_lib.errors import CourseError, UsageError
from course_lib.language.words import tr


@dataclass(frozen=True)
class Shape:
    """The dimensions that must match between a prefix and its model."""

    layers: int
    heads: int
    head_size: int

    def __post_init__(self) -> None:
        if not all(isinstance(size, int) and size > 0 for size in (self.layers, self.heads, self.head_size)):
            raise ValueError(f"{self}: not a shape; allowed: whole numbers above 0")

    @classmethod
    def of(cls, config: Any) -> "Shape":
        """Return the shape for a GPT2Config or GPTNeoXConfig."""
        heads = config.num_attention_heads
        return cls(config.num_hidden_layers, heads, config.hidden_size // heads)

    @property
    def width(self) -> int:
        """Number of values per prefix position: keys and values for all layers."""
        return 2 * self.layers * self.heads * self.head_size

    def __str__(self) -> str:
        return f"{self.layers} layers × {self.heads} heads × {self.head_size}"


@dataclass(frozen=True, eq=False)
class Prefix:
    """The trained prefix for a task. `base` is empty and `shape` is None if the file does not record them."""

    values: Tensor  # fp32 [P, width]
    task: str
    base: str = ""  # digest of the base model's weights
    shape: Shape | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def require(self, shape: Shape, base: str = "") -> None:
        """Raise CourseError if the shape does not match, or if both base model digests are known but differ."""
        width = self.values.shape[1]
        if width != shape.width or self.shape not in (None, shape):
            recorded = f" ({self.shape})" if self.shape else ""
            raise CourseError(
                f"prefix {self.task}: {width} numbers per position{recorded}, the model takes {shape.width} ({shape})"
            )
        if self.base and base and self.base != base:
            raise CourseError(
                tr("prefix {task}: trained on the weights {own}, the model's are {base}; "
                   "a prefix works with its own base only", task=self.task, own=self.base[:12], base=base[:12])
            )  # fmt: skip


class _Fixed(DynamicLayer):  # type: ignore[misc]
    """A cache layer that never stores new keys and values, so that recomputation can repeat the forward pass."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return torch.cat([self.keys, key_states], -2), torch.cat([self.values, value_states], -2)


def past(
    values: Sequence[Tensor | None], shape: Shape, dtype: torch.dtype, device: torch.device | str, grows: bool = True
) -> tuple[DynamicCache, Tensor]:
    """Return the cache and the attention mask for a batch in which sequence i has the prefix `values[i]`.

    Prefixes [P_i, width] of a sequence may be None; shorter ones are padded on the left (mask 0). Gradients flow back
    into `values`. Sequences that share a prefix must pass the same tensor object; a prefix shared by all is not copied.
    The mask is [batch, length of the longest prefix]. With `grows`, the cache stores the keys and values that the model
    adds, as generation requires; otherwise it is left unchanged, so that a backward pass can recompute blocks.
    """
    lengths = torch.tensor([0 if rows is None else len(rows) for rows in values], device=device)
    longest = int(lengths.max())
    mask = (torch.arange(longest, device=device) >= longest - lengths[:, None]).long()
    if longest == 0:
        return DynamicCache(), mask
    empty = torch.zeros(0, shape.width)
    distinct = {id(rows): empty if rows is None else rows for rows in values}
    padded = [functional.pad(rows.to(device, dtype), (0, 0, longest - len(rows), 0)) for rows in distinct.values()]
    stacked = torch.stack(padded).view(len(padded), longest, shape.layers, 2, shape.heads, shape.head_size)
    # [layers, key/value, distinct prefixes, heads, P, head size]
    layers = stacked.permute(2, 3, 0, 4, 1, 5)
    if len(padded) > 1:
        order = list(distinct)
        layers = layers[:, :, torch.tensor([order.index(id(rows)) for rows in values], device=device)]
    layers = layers.expand(-1, -1, len(values), -1, -1, -1)
    cache = DynamicCache()
    cache.layers = [_layer(keys, vals, grows) for keys, vals in layers]
    return cache, mask


def _layer(keys: Tensor, values: Tensor, grows: bool) -> DynamicLayer:
    """Return a cache layer that holds these tensors, without the copy that its own `update` method would make."""
    layer = DynamicLayer() if grows else _Fixed()
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values = keys, values
    return layer


def left_padded(rows: Sequence[Sequence[int]], device: torch.device | str, fill: int = 0) -> tuple[Tensor, Tensor]:
    """Return token ids [batch, longest row], padded on the left with `fill`, and their attention mask."""
    longest = max(map(len, rows))
    ids = [[fill] * (longest - len(row)) + list(row) for row in rows]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def positions(prefix_lengths: Tensor, attention_mask: Tensor) -> Tensor:
    """Return position ids [batch, seq]: P + t for token t after a prefix of P positions, and a valid id for padding."""
    return (attention_mask.cumsum(-1) - 1).clamp(min=0) + prefix_lengths[:, None]


def learned_positions(config: Any) -> int | None:
    """Return the number of learned position embeddings in a GPT-2 model; None for GPT-NeoX, which has none."""
    return int(config.max_position_embeddings) if config.model_type == "gpt2" else None


def require_positions(config: Any, prefix: int, tokens: int) -> None:
    """Raise UsageError if a prefix and a text need more learned positions than the model has; GPT-NeoX has no limit."""
    limit = learned_positions(config)
    if limit is not None and prefix + tokens > limit:
        raise UsageError(
            tr("length: a prefix of {prefix} and a text of {tokens} tokens need {needed} positions; "
               "the model has {limit} positions", prefix=prefix, tokens=tokens, needed=prefix + tokens, limit=limit)
        )  # fmt: skip
