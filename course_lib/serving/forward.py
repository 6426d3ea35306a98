"""Forward passes of the model over a batch of rows with different prefixes, with a key/value cache."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.generation.prefix_cache import Shape, past, positions


class Forward:
    """A batch that is being generated.

    The columns of the cache are the prefixes, then the inputs, both padded on the left, then the new tokens.
    """

    def __init__(
        self, model: Any, inputs: Sequence[Sequence[int]], prefixes: Sequence[Tensor | None], room: int
    ) -> None:
        """Prepare the cache, the attention mask and the position ids of a batch, without a forward pass.

        Args:
            model: a GPT-2 or GPT-NeoX of transformers.
            inputs: token ids of each row.
            prefixes: [P, L·2·H] of each row, or None.
            room: maximum number of new tokens per row.
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
        """Return the logits [N, V] after the last token of each row."""
        output = self.model(
            self.ids,
            attention_mask=self.mask[:, : self.columns] if self.padded else None,
            position_ids=self.positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        last: Tensor = output.logits[:, -1]
        return last

    def add(self, tokens: list[int]) -> None:
        """Set the next input token of each row, one id per row."""
        self.ids = torch.tensor(tokens, device=self.device)[:, None]
        self.positions = self.positions[:, -1:] + 1
        self.columns += 1

    def select(self, rows: list[int]) -> None:
        """Keep only `rows`, in this order; an index may repeat. Call this method before `add`."""
        if rows == list(range(len(self.mask))):
            return
        index = torch.tensor(rows, device=self.device)
        self.cache.batch_select_indices(index)
        self.mask, self.positions = self.mask[index], self.positions[index]
