"""Forward passes, with a key/value cache, over a batch of sequences with different prefixes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.generation.prefix_cache import Shape, past, positions


class Forward:
    """A batch that is being generated.

    The cache columns contain the prefixes, the inputs (both padded on the left) and the new tokens, in this order.
    """

    def __init__(
        self, model: Any, inputs: Sequence[Sequence[int]], prefixes: Sequence[Tensor | None], room: int
    ) -> None:
        """Prepare the cache, the attention mask and the position ids of a batch, without a forward pass.

        Args:
            model: a transformers GPT-2 or GPT-NeoX model.
            inputs: token ids of each sequence.
            prefixes: prefix [prefix length, layers · 2 · hidden size] for each sequence, or None.
            room: maximum number of new tokens per sequence.
        """
        self.model = model
        self.device = model.device
        self.cache, front = past(prefixes, Shape.of(model.config), model.dtype, self.device)
        longest = max(map(len, inputs))
        padded = [[0] * (longest - len(row)) + list(row) for row in inputs]
        self.ids = torch.tensor(padded, device=self.device)
        lengths = torch.tensor([len(row) for row in inputs], device=self.device)
        text = (torch.arange(longest, device=self.device) >= longest - lengths[:, None]).long()
        self.positions = positions(front.sum(-1), text)
        self.mask = torch.cat([front, text, text.new_ones(len(inputs), room)], 1)
        self.padded = not bool(self.mask.all())
        self.columns = front.shape[1] + longest

    def logits(self) -> Tensor:
        """Return the logits [N, V] after the last token of each sequence."""
        mask = self.mask[:, : self.columns] if self.padded else None
        options = {"position_ids": self.positions, "past_key_values": self.cache, "use_cache": True}
        logits: Tensor = self.model(self.ids, attention_mask=mask, logits_to_keep=1, **options).logits
        return logits[:, -1]

    def add(self, tokens: list[int]) -> None:
        """Set the next input token for each sequence."""
        self.ids = torch.tensor(tokens, device=self.device)[:, None]
        self.positions = self.positions[:, -1:] + 1
        self.columns += 1

    def select(self, rows: list[int]) -> None:
        """Keep only the sequences in `rows`, in this order; an index may repeat. Call this method before `add`."""
        if rows == list(range(len(self.mask))):
            return
        index = torch.tensor(rows, device=self.device)
        self.cache.batch_select_indices(index)
        self.mask, self.positions = self.mask[index], self.positions[index]
