"""A character trigram model, the baseline that a language model has to beat. This module has no torch.

The probability of a character interpolates trigram, bigram, unigram and uniform distribution by Witten–Bell smoothing:

    p(c | ab) = (count(abc) + kinds(ab) · p(c | b)) / (count(ab) + kinds(ab))

kinds(ab) is the number of different characters seen after ab. The uniform distribution is over all 1,114,112 Unicode
code points, so a character never seen in training costs 20 bits more or less, but has a probability. Source: Chen and
Goodman 1998, "An Empirical Study of Smoothing Techniques for Language Modeling", section "Witten-Bell Smoothing",
https://dash.harvard.edu/handle/1/25104739.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from course_lib.errors import CourseError
from course_lib.evaluation.scoring import Scores, Tokens, Window, one_line

# Number of Unicode code points. BEGIN precedes a document (twice), END is predicted after it: noncharacters.
CODES = 0x110000
BEGIN, END = "\ufdd1", "\ufdd2"
# Training stops after this many characters: 10 million take about 20 s and 1 GB.
MOST = 10_000_000


class Trigram:
    """A character trigram model of raw documents as a `ScoringModel`."""

    max_length = None

    def __init__(self, texts: Iterable[str], normalize: Callable[[str], str] = str, most: int = MOST) -> None:
        """Count the trigrams of raw documents, until there are `most` characters.

        `normalize` is applied to every text, in training and in scoring.
        """
        self.normalize = normalize
        self.characters = 0
        self.counts: list[Counter[str]] = [Counter(), Counter(), Counter()]
        for text in texts:
            line = f"{BEGIN}{BEGIN}{normalize(one_line(text))}{END}"
            self.characters += len(line) - 3
            for order, counts in enumerate(self.counts):
                # The context of the first character is BEGIN BEGIN; BEGIN itself is never predicted.
                counts.update(line[at - order : at + 1] for at in range(2, len(line)))
            if self.characters >= most:
                break
        if not self.characters:
            raise CourseError("trigram model: no text to train on")
        self.totals: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        for counts in self.counts:
            for gram, count in counts.items():
                self.totals[gram[:-1]] += count
                self.kinds[gram[:-1]] += 1

    def probability(self, character: str, context: str) -> float:
        """Return the probability of a character after the last two of `context`; if it has fewer, after these."""
        p = 1 / CODES
        for order, counts in enumerate(self.counts[: len(context) + 1]):
            before = context[len(context) - order :]
            total, kinds = self.totals[before], self.kinds[before]
            if total:
                p = (counts[before + character] + kinds * p) / (total + kinds)
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
        read = BEGIN + "".join(map(chr, window.read))
        scored = range(window.first, len(window.target))
        values = [math.log(self.probability(chr(window.target[at]), read[at : at + 2])) for at in scored]
        return Scores(np.array(values, np.float64), None)
