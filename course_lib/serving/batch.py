"""Continuous batching: texts join and leave the batch between two tokens.

In static batching, a batch starts together and lasts until its longest text is finished, so short texts leave places
empty that waiting texts could use. Here, each step generates one token for every running text; then finished texts
leave, and waiting ones take their places. Introduced by Orca (Yu et al. 2022,
https://www.usenix.org/conference/osdi22/presentation/yu), and used by vLLM and TensorRT-LLM.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from course_lib.serving import beam, sampling
from course_lib.serving.request import Answer, TextRequest
from course_lib.serving.sampling import Text
from course_lib.serving.slots import Slots

ROWS = 64  # maximum number of texts in one forward pass


@dataclass(eq=False)
class Generation:
    """A row that is being generated, or waits for it."""

    row: TextRequest
    input: tuple[int, ...]  # token ids, at least one
    prefix: Tensor | None
    texts: list[Text]  # one, or with beam search the hypotheses, best first
    log_probs: bool = False  # whether the answer needs log probabilities
    lines: list[int] = field(default_factory=list)  # each text's row in the cache

    @property
    def finished(self) -> bool:
        """Whether all texts have ended."""
        return all(text.finished for text in self.texts)

    @property
    def answer(self) -> Answer:
        """The texts in their current state."""
        return Answer([text.beam() for text in self.texts])


class TextBatch:
    """The rows that are being generated together; the other rows do not change a row's text."""

    def __init__(self, model: Any) -> None:
        """Create an empty batch for a transformers GPT-2 or GPT-NeoX model."""
        self.running: list[Generation] = []
        self.slots = Slots(model)

    def fitting(self, waiting: Sequence[Generation]) -> int:
        """Return how many of the waiting rows, in their order, can join now. A beam search takes a place per beam."""
        places = ROWS - sum(generation.row.beam_width for generation in self.running)
        count = 0
        for generation in waiting:
            places -= generation.row.beam_width
            if places < 0 and (count or self.running):
                break
            count += 1
        return count

    @torch.inference_mode()
    def join(self, rows: Sequence[Generation]) -> list[Generation]:
        """Read the inputs of these rows, choose their first tokens, and return the rows that are finished by it."""
        if not rows:
            return []
        first = len(self.slots.lengths)
        logits = self.slots.prefill([row.input for row in rows], [row.prefix for row in rows])
        for line, row in enumerate(rows, first):
            row.lines = [line]
        self._choose(logits, rows)
        self.running += rows
        return self._leave({row for row in rows if row.finished})

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        """Choose the next token of every running text, and return the rows that are finished by it."""
        logits = self.slots.step([text.ids[-1] for row in self.running for text in row.texts])
        self._choose(logits, self.running)
        return self._leave({row for row in self.running if row.finished})

    @torch.inference_mode()
    def drop(self, rows: Collection[Generation]) -> None:
        """Remove rows before they are finished."""
        self._leave(set(rows))

    def _choose(self, logits: Tensor, rows: Sequence[Generation]) -> None:
        """Append the next token to the texts of these rows; logits [N, V] has a line for each text, in order."""
        first = rows[0].lines[0]
        sampled = [row for row in rows if row.row.beam_width == 1]
        searched = [row for row in rows if row.row.beam_width > 1]
        if sampled:
            lines = [row.lines[0] - first for row in sampled]
            own = logits[lines] if searched else logits
            sampling.write(own, [row.texts[0] for row in sampled], any(row.log_probs for row in sampled))
        if searched:
            lines = [line for row in searched for line in row.lines]
            grown, parents = beam.step(logits[[line - first for line in lines]], [row.texts for row in searched])
            for row, texts, own_parents in zip(searched, grown, parents, strict=True):
                row.texts, row.lines = texts, [lines[parent] for parent in own_parents]

    def _leave(self, gone: set[Generation]) -> list[Generation]:
        """Remove these rows, and arrange the cache's rows for those that stay."""
        for index in reversed(range(len(self.running))):
            if self.running[index] in gone:
                # The last row takes the free place, so that few rows of the cache are copied
                last = self.running.pop()
                if index < len(self.running):
                    self.running[index] = last
        self.slots.select([line for row in self.running for line in row.lines])
        start = 0
        for row in self.running:
            row.lines = list(range(start, start + len(row.texts)))
            start += len(row.texts)
        return list(gone)
