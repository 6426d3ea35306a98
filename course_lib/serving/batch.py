"""Continuous batching: texts join and leave the batch between two tokens.

In static batching, a batch starts together and lasts until its longest text is finished, so short texts leave places
empty that waiting texts could use. Here, each step generates one token for every running text; then finished texts
leave, and waiting ones take their places. Introduced by Orca (Yu et al. 2022,
https://www.usenix.org/conference/osdi22/presentation/yu), and used by vLLM and TensorRT-LLM.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from course_lib.serving import sampling
from course_lib.serving.sampling import Text
from course_lib.serving.slots import Slots

ROWS = 64  # maximum number of texts in one forward pass


@dataclass(eq=False)
class Generation:
    """A row that is being generated, or waits for it."""

    input: tuple[int, ...]  # token ids, at least one
    prefix: Tensor | None
    text: Text
    log_probs: bool = False  # whether the answer needs log probabilities


class TextBatch:
    """The rows that are being generated together; the other rows do not change a row's text."""

    def __init__(self, model: Any) -> None:
        """Create an empty batch for a transformers GPT-2 or GPT-NeoX model."""
        self.running: list[Generation] = []
        self.slots = Slots(model)

    @property
    def free(self) -> int:
        """How many further rows can join."""
        return ROWS - len(self.running)

    @torch.inference_mode()
    def join(self, rows: Sequence[Generation]) -> list[Generation]:
        """Read the inputs of these rows, choose their first tokens, and return the rows that are finished by it."""
        if not rows:
            return []
        logits = self.slots.prefill([row.input for row in rows], [row.prefix for row in rows])
        self._choose(logits, rows)
        self.running += rows
        return self.leave({row for row in rows if row.text.finished})

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        """Choose the next token of every running text, and return the rows that are finished by it."""
        logits = self.slots.step([row.text.ids[-1] for row in self.running])
        self._choose(logits, self.running)
        return self.leave({row for row in self.running if row.text.finished})

    def _choose(self, logits: Tensor, rows: Sequence[Generation]) -> None:
        """Append the next token to the texts of these rows; logits [N, V] has a line for each text, in order."""
        sampling.write(logits, [row.text for row in rows], any(row.log_probs for row in rows))

    @torch.inference_mode()
    def leave(self, gone: set[Generation]) -> list[Generation]:
        """Remove rows, finished or not, and arrange the cache's rows for those that stay."""
        places = list(range(len(self.running)))
        for index in reversed(range(len(self.running))):
            if self.running[index] in gone:
                # The last row takes the free place, so that few rows of the cache are copied
                last, place = self.running.pop(), places.pop()
                if index < len(self.running):
                    self.running[index], places[index] = last, place
        self.slots.select(places)
        return list(gone)
