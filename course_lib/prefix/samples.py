"""What training reads: rows of ids in their shuffled order, epoch after epoch, and batches of them padded on the right.

Everything follows from the seed and the number of the row, so that a resumed run goes on with what an unbroken one would have read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from course_lib.prefix.data import Sample

IGNORED = -100  # a label without a loss


@dataclass(frozen=True)
class Row:
    """A text with its end and, if it has one, its begin; the loss begins at ids[learned]."""

    ids: list[int]
    learned: int  # at least 1: something must come before what is predicted


def rows(samples: Iterable[Sample], begin: int | None, plain: bool, end: int) -> list[Row]:
    """The rows of samples in their order. A sample without prompt is one behind the id `begin`, where that is given, and one without if `plain`."""
    found = []
    for sample in samples:
        whole = [*sample.prompt, *sample.target, end]
        if sample.prompt:
            found.append(Row(whole, len(sample.prompt)))
            continue
        if begin is not None:
            found.append(Row([begin, *whole], 1))
        if plain:
            found.append(Row(whole, 1))
    return found


class Samples(torch.utils.data.Dataset[Row]):
    """`number` rows: all of them in an order of their own for each epoch. With `shuffle=False` each once, in order."""

    def __init__(self, rows: Sequence[Row], number: int, seed: int, shuffle: bool = True) -> None:
        self.rows, self.number, self.seed, self.shuffle = rows, number, seed, shuffle
        self._order = lru_cache(2)(self._epoch)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> Row:
        if not 0 <= index < self.number:
            raise IndexError(index)
        epoch, place = divmod(index, len(self.rows))
        return self.rows[int(self._order(epoch)[place]) if self.shuffle else place]

    def _epoch(self, number: int) -> npt.NDArray[np.int64]:
        return np.random.default_rng([self.seed, number]).permutation(len(self.rows))


def collate(batch: Sequence[Row]) -> dict[str, Tensor]:
    """{"input_ids", "labels"} [B, T]: T is one less than the longest row, labels are the ids one further on, or IGNORED.

    No attention mask: padding on the right lies behind everything that could see it.
    """
    longest = max(len(row.ids) for row in batch)
    ids = np.zeros((len(batch), longest), np.int64)
    labels = np.full((len(batch), longest), IGNORED, np.int64)
    for place, row in enumerate(batch):
        ids[place, : len(row.ids)] = row.ids
        labels[place, row.learned : len(row.ids)] = row.ids[row.learned :]
    return {"input_ids": torch.from_numpy(ids[:, :-1]), "labels": torch.from_numpy(labels[:, 1:])}


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy [nats] of logits [B, T, V] where labels [B, T] are not IGNORED."""
    return functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
