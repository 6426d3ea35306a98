"""The key/value cache of texts that are being generated together, each of its own length.

Text i has row i of the cache, from column 0 on: its prefix, its input, and its new tokens. Its next token is written at
column lengths[i], and has position id lengths[i]. So a text can join or leave without moving the others.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from course_lib.generation.prefix_cache import Shape, left_padded, past, positions

COLUMNS = 64  # the cache grows by at least this many columns [tokens]


class Slots:
    """The cache, and the forward passes that read and extend it.

    Memory: layers · 2 · hidden size numbers per row and column. Both dimensions grow when needed, by doubling the rows
    and by a quarter of the columns; the memory is freed when the last text leaves.
    """

    def __init__(self, model: Any) -> None:
        """Create an empty cache for a transformers GPT-2 or GPT-NeoX model."""
        self.model = model
        self.shape = Shape.of(model.config)
        self.lengths: list[int] = []
        self.store: Tensor = self._empty(0, 0)

    def prefill(self, inputs: Sequence[Sequence[int]], prefixes: Sequence[Tensor | None]) -> Tensor:
        """Add a row per text, with its prefix [P, width] or None, and return the logits [N, V] after its input."""
        device = self.model.device
        cache, front = past(prefixes, self.shape, self.model.dtype, device)
        ids, text = left_padded(inputs, device)
        # Columns of this pass: prefixes, then inputs, both padded on the left
        mask = torch.cat([front, text], 1)
        logits: Tensor = self.model(
            ids,
            attention_mask=None if mask.all() else mask,
            position_ids=positions(front.sum(-1), text),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        self._add(cache, mask.bool())
        return logits[:, -1]

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Append a token to each text, and return the logits [N, V] after it."""
        device, width = self.model.device, max(self.lengths) + 1
        self._reserve(len(self.lengths), width)
        ends = torch.tensor(self.lengths, device=device)
        cache = DynamicCache()
        cache.layers = [_Layer(keys, values, ends, width) for keys, values in self.store]
        even = min(self.lengths) == width - 1
        logits: Tensor = self.model(
            torch.tensor(tokens, device=device)[:, None],
            attention_mask=None if even else (torch.arange(width, device=device) <= ends[:, None]).long(),
            position_ids=ends[:, None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        self.lengths = [length + 1 for length in self.lengths]
        return logits[:, -1]

    def select(self, rows: Sequence[int]) -> None:
        """Keep only these rows, in this order; an index may repeat. Only rows that change their place are copied."""
        moved = [index for index, row in enumerate(rows) if row != index]
        self._reserve(len(rows), 0)
        if moved:
            width, sources = max(self.lengths), [rows[index] for index in moved]
            self.store[:, :, moved, :, :width] = self.store[:, :, sources, :, :width]
        self.lengths = [self.lengths[row] for row in rows]
        if not rows:
            self.store = self._empty(0, 0)

    def _add(self, cache: DynamicCache, used: Tensor) -> None:
        """Copy the used columns of a prefill's cache [layers][N, heads, columns, head size] into new rows."""
        first, lengths = len(self.lengths), used.sum(1).tolist()
        self._reserve(first + len(lengths), max(lengths))
        for own, layer in zip(self.store, cache.layers, strict=True):
            for index, length in enumerate(lengths):
                own[0, first + index, :, :length] = layer.keys[index][:, used[index]]
                own[1, first + index, :, :length] = layer.values[index][:, used[index]]
        self.lengths += lengths

    def _reserve(self, rows: int, columns: int) -> None:
        """Make the cache large enough for this many rows and columns; what it holds is kept."""
        now_rows, now_columns = self.store.shape[2], self.store.shape[4]
        if rows <= now_rows and columns <= now_columns:
            return
        larger_rows = now_rows if rows <= now_rows else max(rows, 2 * now_rows)
        if columns > now_columns:
            columns = max(columns + COLUMNS, now_columns * 5 // 4)
        larger = self._empty(larger_rows, max(columns, now_columns))
        larger[:, :, :now_rows, :, :now_columns] = self.store
        self.store = larger

    def _empty(self, rows: int, columns: int) -> Tensor:
        """Return [layers, keys/values, rows, heads, columns, head size]. Zeros: a masked NaN would spread."""
        size = (self.shape.layers, 2, rows, self.shape.heads, columns, self.shape.head_size)
        return torch.zeros(size, dtype=self.model.dtype, device=self.model.device)


class _Layer(DynamicLayer):  # type: ignore[misc]
    """One layer of the cache during a step, as transformers wants it."""

    def __init__(self, keys: Tensor, values: Tensor, ends: Tensor, width: int) -> None:
        """Keep keys and values [rows, heads, columns, head size]; new tokens go to columns `ends`, of `width`."""
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values, self.ends, self.width = keys, values, ends, width

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the new keys and values [N, heads, 1, head size] in place, and return all of them."""
        count = len(self.ends)
        rows = torch.arange(count, device=self.ends.device)
        self.keys[rows, :, self.ends] = key_states[:, :, 0]
        self.values[rows, :, self.ends] = value_states[:, :, 0]
        return self.keys[:count, :, : self.width], self.values[:count, :, : self.width]

    def get_seq_length(self) -> int:
        """Return the number of columns before the new token of the longest text."""
        return self.width - 1
