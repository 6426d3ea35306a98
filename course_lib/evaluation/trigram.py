"""A character trigram model, the baseline that a language model has to beat. This module has no torch.

The probability of a character interpolates trigram, bigram, unigram and uniform distribution by Witten–Bell smoothing:

    p(c | ab) = (count(abc) + kinds(ab) · p(c | b)) / (count(ab) + kinds(ab))

kinds(ab) is the number of different characters seen after ab. The uniform distribution is over all 1,114,112 Unicode
code points, so a character never seen in training costs 20 bits more or less, but has a probability. Source: Chen and
Goodman 1998, "An Empirical Study of Smoothing Techniques for Language Modeling", section "Witten-Bell Smoothing",
https://dash.harvard.edu/handle/1/25104739.

An n-gram is stored as an integer, its key: 21 bits for each character. The training text is read once. Memory holds
the different trigrams as a sorted array of keys and their counts, and AT_ONCE characters of the text: 170 million
characters of fiction have 11 million different trigrams, and take 21 s and 1.1 GB.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from course_lib.errors import CourseError
from course_lib.evaluation.scoring import Scores, Tokens, Window, one_line

# Number of Unicode code points, and bits of a character in a key.
CODES, BITS = 0x110000, 21
# BEGIN precedes a document (twice), END is predicted after it: noncharacters.
BEGIN, END = "\ufdd1", "\ufdd2"
# Characters of the training text that are counted at once.
AT_ONCE = 4_000_000

Keys = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NGrams:
    """The n-grams of one length. The arrays of a line have the same length; keys are sorted and distinct."""

    length: int  # [characters]
    keys: Keys
    counts: Counts
    contexts: Keys  # the n-grams without their last character
    totals: Counts  # number of characters seen after each context
    kinds: Counts  # number of different characters seen after each context

    @classmethod
    def grouped(cls, length: int, keys: Keys, counts: Counts) -> "NGrams":
        """Return n-grams with their contexts, from sorted keys and their counts."""
        contexts = keys >> np.uint64(BITS)
        starts = _starts(contexts)
        totals, kinds = np.add.reduceat(counts, starts), np.diff(starts, append=len(keys))
        return cls(length, keys, counts, contexts[starts], totals, kinds)

    def without_first(self) -> "NGrams":
        """Return the n-grams that are one character shorter: those that begin at the second character."""
        shorter = self.length - 1
        keys, counts = _sorted(self.keys & np.uint64((1 << BITS * shorter) - 1), self.counts)
        return NGrams.grouped(shorter, keys, counts)

    def texts(self) -> dict[str, int]:
        """Return the n-grams as texts, with their counts."""
        shifts = range(BITS * (self.length - 1), -1, -BITS)
        keys = ("".join(chr(key >> shift & (1 << BITS) - 1) for shift in shifts) for key in self.keys.tolist())
        return dict(zip(keys, self.counts.tolist(), strict=True))


class Trigram:
    """A character trigram model of raw documents as a `ScoringModel`."""

    max_length = None

    def __init__(
        self, texts: Iterable[str], normalize: Callable[[str], str] = str, *, normalized: bool = False
    ) -> None:
        """Count the trigrams of raw documents; `normalize` is applied to every text, in training and in scoring.

        `normalized` documents are counted as they are.
        """
        self.normalize = normalize
        self.characters = 0
        # The longest n-grams that a probability is made of.
        self.length = 3
        if not normalized:
            texts = (normalize(one_line(text)) for text in texts)
        trigrams = NGrams.grouped(3, *self._counted(texts))
        bigrams = trigrams.without_first()
        self.grams = [bigrams.without_first(), bigrams, trigrams]

    def _counted(self, texts: Iterable[str]) -> tuple[Keys, Counts]:
        """Return the sorted keys of all trigrams, and their counts."""
        counted: list[tuple[Keys, Counts]] = []
        for lines in self._parts(texts):
            counted.append(np.unique(_trigrams(lines), return_counts=True))
            # Merge arrays of similar size only, so that each trigram is merged a few times.
            while len(counted) > 1 and len(counted[-2][0]) < 2 * len(counted[-1][0]):
                counted.append(_merged(counted.pop(), counted.pop()))
        if not self.characters:
            raise CourseError("trigram model: no text to train on")
        while len(counted) > 1:
            counted.append(_merged(counted.pop(), counted.pop()))
        return counted[0]

    def _parts(self, texts: Iterable[str]) -> Iterator[list[str]]:
        """Yield normalized documents between BEGIN BEGIN and END, about AT_ONCE characters of them at a time."""
        lines, size = list[str](), 0
        for text in texts:
            lines.append(f"{BEGIN}{BEGIN}{text}{END}")
            size += len(lines[-1])
            self.characters += len(lines[-1]) - 3
            if size >= AT_ONCE:
                yield lines
                lines, size = [], 0
        if lines:
            yield lines

    @property
    def counts(self) -> list[dict[str, int]]:
        """The counts of unigrams, bigrams and trigrams, by their text."""
        return [grams.texts() for grams in self.grams]

    def unigram(self) -> "Trigram":
        """Return the unigram model of the same counts: every character has one probability, whatever precedes it."""
        model = copy.copy(self)
        model.length = 1
        return model

    def probability(self, character: str, context: str) -> float:
        """Return the probability of a character after the last two of `context`; if it has fewer, after these."""
        codes = [*map(ord, context[max(len(context) - 2, 0) :] + character)]
        return float(self._probabilities(np.array([codes[-self.length :]], np.uint64))[0])

    def _probabilities(self, codes: Keys) -> npt.NDArray[np.float64]:
        """Return the probability of the last character of each row of code points [rows, at most 3]."""
        p = np.full(len(codes), 1 / CODES)
        keys = np.zeros(len(codes), np.uint64)
        for at, grams in enumerate(self.grams[: codes.shape[1]]):
            keys = keys | codes[:, -1 - at] << np.uint64(BITS * at)
            before = keys >> np.uint64(BITS)
            total, kinds = _look_up(grams.contexts, before, grams.totals, grams.kinds)
            (count,) = _look_up(grams.keys, keys, grams.counts)
            p = np.where(total > 0, (count + kinds * p) / np.maximum(total + kinds, 1), p)
        return p

    def tokens(self, text: str, end: bool) -> Tokens:
        """Return the normalized text's characters as code points."""
        normal = self.normalize(text)
        target = [ord(character) for character in (normal + END if end else normal)]
        return Tokens([ord(BEGIN), *target][: len(target)], target, normal)

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return the scores of each window's `target[first:]`."""
        return [self._score(window) for window in windows]

    def _score(self, window: Window) -> Scores:
        codes = np.array([ord(BEGIN), *window.read, *window.target[-1:]], np.uint64)
        rows = np.lib.stride_tricks.sliding_window_view(codes, 3)[window.first :, -self.length :]
        # math.log, because numpy's logarithm can differ from it in the last digit.
        return Scores(np.array([*map(math.log, self._probabilities(rows).tolist())], np.float64), None)


def _trigrams(lines: Sequence[str]) -> Keys:
    """Return the keys of all trigrams of each line, in order."""
    codes = np.frombuffer("".join(lines).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    keys = codes[:-2] << np.uint64(2 * BITS) | codes[1:-1] << np.uint64(BITS) | codes[2:]
    # Leave out the two trigrams that span the end of a line and the beginning of the next one.
    ends = np.cumsum([len(line) for line in lines])[:-1]
    return np.delete(keys, np.concatenate([ends - 2, ends - 1]))


def _sorted(keys: Keys, counts: Counts) -> tuple[Keys, Counts]:
    """Return the distinct keys, sorted, and the sum of the counts of each."""
    # Timsort, which is fast where the keys are a few sorted arrays behind each other.
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = _starts(keys)
    return keys[starts], np.add.reduceat(counts[order], starts)


def _merged(first: tuple[Keys, Counts], second: tuple[Keys, Counts]) -> tuple[Keys, Counts]:
    return _sorted(np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]]))


def _starts(keys: Keys) -> npt.NDArray[np.intp]:
    """Return where each run of equal keys begins."""
    return np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))


def _look_up(keys: Keys, wanted: Keys, *values: Counts) -> list[Counts]:
    """Return the values of the wanted keys; 0 for a key that is not there."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    known = keys[at] == wanted
    return [np.where(known, each[at], 0) for each in values]
