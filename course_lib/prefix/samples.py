"""Training input: rows of ids in shuffled order, epoch after epoch, and batches of rows padded on the right.

A row depends only on the seed and its index. A resumed run therefore reads the same rows as an uninterrupted one.
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

# Label of a position that has no loss.
IGNORED = -100


@dataclass(frozen=True)
class Row:
    """A text with its end token and, if it has one, its begin token; the loss starts at ids[learned]."""

    ids: list[int]
    learned: int  # at least 1: the first id cannot be predicted, because no id precedes it


def rows(samples: Iterable[Sample], begin: int | None, plain: bool, end: int) -> list[Row]:
    """Return the rows of samples, in the order of the samples; a sample with a prompt gives one row.

    Args:
        samples: the samples.
        begin: id of a begin token: each sample without a prompt gives a row that starts with it; None: no such row.
        plain: whether each sample without a prompt gives a row without a begin token.
        end: id of the end token, which ends every row.
    """
    result = []
    for sample in samples:
        whole = [*sample.prompt, *sample.target, end]
        if sample.prompt:
            result.append(Row(whole, len(sample.prompt)))
            continue
        if begin is not None:
            result.append(Row([begin, *whole], 1))
        if plain:
            result.append(Row(whole, 1))
    return result


class Samples(torch.utils.data.Dataset[Row]):
    """Dataset of `number` rows that repeats the given rows, in a new random order for each epoch.

    With `shuffle=False`, the rows keep their order.
    """

    def __init__(self, rows: Sequence[Row], number: int, seed: int, shuffle: bool = True) -> None:
        self.rows, self.number, self.seed, self.shuffle = rows, number, seed, shuffle
        self._order = lru_cache(2)(self._epoch)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> Row:
        if not 0 <= index < self.number:
            raise IndexError(index)
        epoch, offset = divmod(index, len(self.rows))
        return self.rows[int(self._order(epoch)[offset]) if self.shuffle else offset]

    def _epoch(self, number: int) -> npt.NDArray[np.int64]:
        return np.random.default_rng([self.seed, number]).permutation(len(self.rows))


def collate(batch: Sequence[Row]) -> dict[str, Tensor]:
    """Return {"input_ids", "labels"}, each [batch, seq], where seq is one less than the length of the longest row.

    A label is the id of the next position, or IGNORED. There is no attention mask: padding is on the right, where no
    token of a causal model can see it.
    """
    longest = max(len(row.ids) for row in batch)
    ids = np.zeros((len(batch), longest), np.int64)
    labels = np.full((len(batch), longest), IGNORED, np.int64)
    for index, row in enumerate(batch):
        ids[index, : len(row.ids)] = row.ids
        labels[index, row.learned : len(row.ids)] = row.ids[row.learned :]
    return {"input_ids": torch.from_numpy(ids[:, :-1]), "labels": torch.from_numpy(labels[:, 1:])}


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy [nats] of logits [batch, seq, V] over the labels [batch, seq] except IGNORED."""
    return functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
