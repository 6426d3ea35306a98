"""Training input: sequences of token ids, shuffled anew for each epoch, and batches with padding on the right."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from course_lib.prefix.data import Sample

T = TypeVar("T")
# Label for positions that are excluded from the loss.
IGNORED = -100
# The ids that a model reads, and the label at each position: the id of the next token, or IGNORED.
Example = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class TokenRow:
    """A training sequence: a text with an end token and, optionally, a begin token. Loss starts at ids[learned]."""

    ids: list[int]
    learned: int  # at least 1: the first id cannot be predicted, because no id precedes it

    def example(self) -> Example:
        """Return the ids that the model reads, and the labels."""
        return self.ids[:-1], [IGNORED] * (self.learned - 1) + self.ids[self.learned :]

    @property
    def targets(self) -> int:
        """Number of ids that the loss is on."""
        return len(self.ids) - self.learned


def rows(samples: Iterable[Sample], begin: int | None, plain: bool, end: int) -> list[TokenRow]:
    """Return the training sequences for the samples, in order. Each ends in the id `end`, unless its sample was cut.

    A sample without a prompt yields a sequence that starts with the id `begin`, unless that is None, and one without
    it if `plain` is set. A sample with a prompt yields one sequence.
    """
    result = []
    for sample in samples:
        whole = [*sample.prompt, *sample.target]
        if not sample.cut:
            whole.append(end)
        if begin is not None and not sample.prompt:
            result.append(TokenRow([begin, *whole], 1))
        if plain or sample.prompt:
            result.append(TokenRow(whole, len(sample.prompt) or 1))
    return result


class Samples(torch.utils.data.Dataset[T]):
    """Dataset that repeats `rows`, shuffled anew for each epoch; a sequence depends on the seed and its index only."""

    def __init__(self, rows: Sequence[T], number: int, seed: int, shuffle: bool = True) -> None:
        self.rows, self.number, self.seed, self.shuffle = rows, number, seed, shuffle
        self._order = lru_cache(2)(self._epoch)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> T:
        if not 0 <= index < self.number:
            raise IndexError(index)
        epoch, offset = divmod(index, len(self.rows))
        return self.rows[int(self._order(epoch)[offset]) if self.shuffle else offset]

    def _epoch(self, number: int) -> npt.NDArray[np.int64]:
        return np.random.default_rng([self.seed, number]).permutation(len(self.rows))


def collate(batch: Sequence[TokenRow]) -> dict[str, Tensor]:
    """Return a dict with "input_ids" and "labels", each [batch, longest sequence minus one], as from `padded`."""
    ids, labels = padded([row.example() for row in batch])
    return {"input_ids": ids, "labels": labels}


def padded(examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Return ids and labels [batch, longest example].

    There is no attention mask: padding is on the right, where no token in a causal model can attend to it.
    """
    ids, labels = ([torch.tensor(part) for part in parts] for parts in zip(*examples, strict=True))
    return pad_sequence(ids, True), pad_sequence(labels, True, IGNORED)


def batches(examples: Sequence[Example], steps: int, seed: int, size: int = 8) -> list[tuple[Tensor, Tensor]]:
    """Return ids and labels of each step, in the order in which a run with this seed reads them."""
    drawn = Samples(examples, steps * size, seed)
    return [padded([drawn[start + n] for n in range(size)]) for start in range(0, steps * size, size)]


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy [nats per token] of logits [batch, seq, V] for labels [batch, seq], or IGNORED."""
    return functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
