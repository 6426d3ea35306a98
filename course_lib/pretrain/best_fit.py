"""Best-fit packing: a sample holds whole documents, as many as fit, and no token attends to another document.

Samples cut from one long stream (sampling.py) waste no position, but cut documents in two, and a token attends to
documents that have nothing to do with it. Both cost: Ding et al. 2024 (https://arxiv.org/abs/2404.10830), Zhao et al.
2024 (https://arxiv.org/abs/2402.13991). Here the positions of a sample count on over its documents, so that a model
learns to begin a text at any position: behind a prefix, for example.

As in Ding et al., a document longer than a sample is first split into pieces of a sample's length and a remainder, and
the pieces are packed like documents, so that each epoch reads every token once. A remainder does not begin a text, so
no `</s>` precedes it. Its first token has nothing before it, so it is read, but not predicted.
"""

import math
from typing import Any

import numpy as np

from course_lib.pretrain.sampling import Array, Concatenated
from course_lib.training.run import ENDLESS

WINDOW = 200  # pieces that are packed together, the longest first
NO_TOKEN = -100  # where a sample has no token: before a remainder, and in padding; as a label, it has no loss


class PackedDocuments:
    """At least `samples` samples of a corpus, in a new random order for each epoch (None: one epoch).

    ENDLESS samples are packed as they are read.
    """

    def __init__(self, corpus: Concatenated, seq_length: int, samples: int | None, seed: int, end: int) -> None:
        """Take the token id `end`, which each document of the corpus ends with."""
        self.corpus, self.end, self.seq_length, self.seed = corpus, end, seq_length, seed
        self.pieces = Pieces(corpus.sizes, seq_length)
        # the pieces of each sample, and the number of epochs that they are from
        self.samples: list[list[int]] = []
        self.epochs = 0
        self._add_epoch()
        # number of samples in the first epoch
        self.first_epoch = len(self.samples)
        self.is_endless = samples == ENDLESS
        while not self.is_endless and len(self.samples) < (samples or 0):
            self._add_epoch()

    def __len__(self) -> int:
        return ENDLESS if self.is_endless else len(self.samples)

    def __getitem__(self, index: int) -> Array:
        """Return the token ids of a sample, [at most seq_length + 1]; it depends on seed and index only.

        A remainder has NO_TOKEN in front of it. So has a later piece of a long document. A sample that begins with a
        document begins with `end`.
        """
        while self.is_endless and index >= len(self.samples):
            self._add_epoch()
        parts: list[Array] = []
        for piece in self.samples[index]:
            document, start, size = self.pieces[piece]
            if start:
                parts.append(np.array([NO_TOKEN]))
            elif not parts:
                parts.append(np.array([self.end]))
            parts.append(self.corpus.get(document, start, size).astype(np.int64))
        return np.concatenate(parts)

    def samples_in(self, epochs: float) -> int:
        """Return the number of samples in a number of epochs, whose last one may be a fraction of one."""
        sizes = [len(self._epoch(number)) for number in range(math.ceil(epochs))]
        whole = math.floor(epochs)
        return sum(sizes[:whole]) + sum(math.floor(size * (epochs - whole)) for size in sizes[whole:])

    def _add_epoch(self) -> None:
        self.samples += self._epoch(self.epochs)
        self.epochs += 1

    def _epoch(self, number: int) -> list[list[int]]:
        random = np.random.default_rng([self.seed, number])
        order = random.permutation(len(self.pieces))
        packed = [
            sample
            for start in range(0, len(order), WINDOW)
            for sample in pack(self.pieces.needed, order[start : start + WINDOW], self.seq_length)
        ]
        # Neither long samples nor, in a sample, long pieces come first: a run may evaluate only some samples.
        random.shuffle(packed)
        return [random.permutation(sample).tolist() for sample in packed]


class Pieces:
    """The pieces of documents, in the order of the documents: each has at most `seq_length` tokens."""

    def __init__(self, sizes: Array, seq_length: int) -> None:
        # An empty document is one empty piece.
        numbers = np.maximum(-(-sizes // seq_length), 1)
        first = np.cumsum(numbers) - numbers
        self.document = np.repeat(np.arange(len(sizes)), numbers)
        self.start = (np.arange(len(self.document)) - first[self.document]) * seq_length
        self.size = np.minimum(sizes[self.document] - self.start, seq_length)
        # A remainder needs the position in front of it, too; a piece of `seq_length` tokens is alone in its sample.
        self.needed = np.minimum(self.size + (self.start > 0), seq_length)

    def __len__(self) -> int:
        return len(self.document)

    def __getitem__(self, piece: int) -> tuple[int, int, int]:
        """Return the document of a piece, the position of its first token in the document, and the number of tokens."""
        return int(self.document[piece]), int(self.start[piece]), int(self.size[piece])


def pack(sizes: Array, documents: Array, seq_length: int) -> list[list[int]]:
    """Return samples of at most `seq_length` tokens: best-fit decreasing.

    The documents, or pieces of documents, are placed one by one, the longest first, each into the fullest sample with
    enough space left, or into a new one. `sizes` are the tokens of each document of the corpus, at most `seq_length`.
    """
    samples: list[list[int]] = []
    left: list[int] = []
    for document in documents[np.argsort(-sizes[documents], kind="stable")].tolist():
        size = int(sizes[document])
        fitting = [index for index, space in enumerate(left) if space >= size]
        fullest = min(fitting, key=left.__getitem__, default=len(samples))
        if fullest == len(samples):
            samples.append([])
            left.append(seq_length)
        samples[fullest].append(document)
        left[fullest] -= size
    return samples


def document_mask(tokens: Any, end: int) -> Any:
    """Return which position attends to which [batch, 1, seq, seq, bool], for tokens [batch, seq].

    A document reaches from an `end` to the last token before the next: its tokens see it and those before them.
    Megatron's --reset-attention-mask counts an `end` to the document before it instead. Behind NO_TOKEN, a remainder
    begins, which sees none of the tokens before it.
    """
    begins = tokens == end
    begins[:, 1:] |= tokens[:, :-1] == NO_TOKEN
    document = begins.cumsum(-1)
    return (document[:, None, :, None] == document[:, None, None, :]).tril()
