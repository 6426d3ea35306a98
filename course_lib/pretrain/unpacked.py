"""Samples without packing: one document each, behind an end-of-document token, as generation begins a new text.

Packed samples (sampling.py) waste no position, but a token then attends to documents that have nothing to do with it
(Zhao et al. 2024, https://arxiv.org/abs/2402.13991). Padding wastes computation instead: worth it for short texts.
Neighbors of similar length waste less of it (tests/bench/README.md, small world).
"""

from functools import lru_cache

import numpy as np

from course_lib.pretrain.sampling import Array, Concatenated

WINDOW = 80  # documents that are sorted by length


class DocumentDataset:
    """At least `samples` samples of a corpus, in a new random order for each epoch (None: one epoch, in file order).

    Each WINDOW documents of the random order are sorted by length.
    """

    def __init__(self, corpus: Concatenated, seq_length: int, samples: int | None, seed: int, end: int) -> None:
        """Take the token id `end`, which each document of the corpus ends with and each sample begins with."""
        self.corpus, self.seq_length, self.samples, self.seed, self.end = corpus, seq_length, samples, seed, end
        self._order = lru_cache(2)(self._epoch)

    def __len__(self) -> int:
        return self.samples or len(self.corpus.sizes)

    def __getitem__(self, index: int) -> Array:
        """Return the token ids of a sample, [at most seq_length + 1]; it depends on seed and index only."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        epoch, place = divmod(index, len(self.corpus.sizes))
        document = int(self._order(epoch)[place]) if self.samples else place
        length = min(int(self.corpus.sizes[document]), self.seq_length)
        return np.append(self.end, self.corpus.get(document, 0, length).astype(np.int64))

    def _epoch(self, number: int) -> Array:
        order = np.random.default_rng([self.seed, number]).permutation(len(self.corpus.sizes))
        return order[np.lexsort((self.corpus.sizes[order], np.arange(len(order)) // WINDOW))]
