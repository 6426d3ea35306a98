"""Best-fit packing: a sample holds whole documents, as many as fit, and no token attends to another document.

Samples cut from one long stream (sampling.py) waste no position, but cut documents in two, and a token attends to
documents that have nothing to do with it. Both cost: Ding et al. 2024 (https://arxiv.org/abs/2404.10830), Zhao et al.
2024 (https://arxiv.org/abs/2402.13991). Here the positions of a sample count on over its documents, so that a model
learns to begin a text at any position: behind a prefix, for example.
"""

from itertools import count
from typing import Any

import numpy as np

from course_lib.pretrain.sampling import Array, Concatenated

WINDOW = 200  # documents that are packed together, the longest first


class PackedDocuments:
    """At least `samples` samples of a corpus, in a new random order for each epoch (None: one epoch)."""

    def __init__(self, corpus: Concatenated, seq_length: int, samples: int | None, seed: int, end: int) -> None:
        """Take the token id `end`, which each document of the corpus ends with and each sample begins with.

        A document of more than `seq_length` tokens is cut.
        """
        self.corpus, self.end = corpus, end
        self.sizes = np.minimum(corpus.sizes, seq_length)
        self.samples: list[list[int]] = []
        for epoch in count():
            self.samples += self._epoch(seq_length, np.random.default_rng([seed, epoch]))
            if len(self.samples) >= (samples or 0):
                break

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Array:
        """Return the token ids of a sample, [at most seq_length + 1]; it depends on seed and index only."""
        parts = [self.corpus.get(i, 0, int(self.sizes[i])).astype(np.int64) for i in self.samples[index]]
        return np.concatenate([[self.end], *parts])

    def _epoch(self, seq_length: int, random: np.random.Generator) -> list[list[int]]:
        order = random.permutation(len(self.sizes))
        packed = [
            sample
            for start in range(0, len(order), WINDOW)
            for sample in pack(self.sizes, order[start : start + WINDOW], seq_length)
        ]
        # Neither long samples nor, in a sample, long documents come first: a run may evaluate only some samples.
        random.shuffle(packed)
        return [random.permutation(sample).tolist() for sample in packed]


def pack(sizes: Array, documents: Array, seq_length: int) -> list[list[int]]:
    """Return samples of at most `seq_length` tokens: best-fit decreasing.

    The documents are placed one by one, the longest first, each into the fullest sample with enough space left, or
    into a new one. `sizes` are the tokens of each document of the corpus, at most `seq_length`.
    """
    samples: list[list[int]] = []
    left: list[int] = []
    for document in documents[np.argsort(-sizes[documents], kind="stable")].tolist():
        size = int(sizes[document])
        fitting = [place for place, space in enumerate(left) if space >= size]
        place = min(fitting, key=left.__getitem__, default=len(samples))
        if place == len(samples):
            samples.append([])
            left.append(seq_length)
        samples[place].append(document)
        left[place] -= size
    return samples


def document_mask(tokens: Any, end: int) -> Any:
    """Return which position attends to which [batch, 1, seq, seq, bool], for tokens [batch, seq].

    A document reaches from an `end` to the last token before the next: its tokens see it and those before them.
    Megatron's --reset-attention-mask counts an `end` to the document before it instead.
    """
    document = (tokens == end).cumsum(-1)
    return (document[:, None, :, None] == document[:, None, None, :]).tril()
