"""Training input: sequences of token ids, shuffled anew for each epoch, and batches with padding on the right."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from course_lib.prefix.data import Sample

# Label for positions that are excluded from the loss.
IGNORED = -100


@dataclass(frozen=True)
class TokenRow:
    """A training sequence: a text with an end token and, optionally, a begin token. Loss starts at ids[learned]."""

    ids: list[int]
    learned: int  # at least 1: the first id cannot be predicted, because no id precedes it


def rows(samples: Iterable[Sample], begin: int | None, plain: bool, end: int) -> list[TokenRow]:
    """Return the training sequences for the samples, in order, each with the id `end` at its end.

    A sample without a prompt yields a sequence that starts with the id `begin`, unless that is None, and one without
    it if `plain` is set. A sample with a prompt yields one sequence.
    """
    result = []
    for sample in samples:
        whole = [*sample.prompt, *sample.target, end]
        if begin is not None and not sample.prompt:
            result.append(TokenRow([begin, *whole], 1))
        if plain or sample.prompt:
            result.append(TokenRow(whole, len(sample.prompt) or 1))
    return result


class Samples(torch.utils.data.Dataset[TokenRow]):
    """Dataset that repeats `rows`, shuffled anew for each epoch; a sequence depends on the seed and its index only."""

    def __init__(self, rows: Sequence[TokenRow], number: int, seed: int, shuffle: bool = True) -> None:
        self.rows, self.number, self.seed, self.shuffle = rows, number, seed, shuffle
        self._order = lru_cache(2)(self._epoch)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> TokenRow:
        if not 0 <= index < self.number:
            raise IndexError(index)
        epoch, offset = divmod(index, len(self.rows))
        return self.rows[int(self._order(epoch)[offset]) if self.shuffle else offset]

    def _epoch(self, number: int) -> npt.NDArray[np.int64]:
        return np.random.default_rng([self.seed, number]).permutation(len(self.rows))


def collate(batch: Sequence[TokenRow]) -> dict[str, Tensor]:
    """Return a dict with "input_ids" and "labels", each [batch, seq].

    seq is the length of the longest sequence minus one. A label is the token id at the next position, or IGNORED. There
    is no attention mask: padding is on the right, where no token in a causal model can attend to it.
    """
    longest = max(len(row.ids) for row in batch)
    ids = np.zeros((len(batch), longest), np.int64)
    labels = np.full((len(batch), longest), IGNORED, np.int64)
    for index, row in enumerate(batch):
        ids[index, : len(row.ids)] = row.ids
        labels[index, row.learned : len(row.ids)] = row.ids[row.learned :]
    return {"input_ids": torch.from_numpy(ids[:, :-1]), "labels": torch.from_numpy(labels[:, 1:])}


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy [nats] of logits [batch, seq, V] for labels [batch, seq], excluding IGNORED."""
    return functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
