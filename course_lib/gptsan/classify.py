"""Judges of texts that know nothing of the model: naive Bayes over character bigrams, and known bigrams."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import log

from course_lib.gptsan.examples import Examples
from course_lib.gptsan.swe import SubwordEncoding


class NaiveBayes:
    """Naive Bayes classifier over character bigrams with a uniform prior and add-one smoothing."""

    def __init__(self, texts: Sequence[str], labels: Sequence[int]) -> None:
        """Count the bigrams in each class."""
        self.counts: dict[int, Counter[str]] = {label: Counter() for label in sorted(set(labels))}
        if not self.counts:
            raise ValueError("no texts to learn from")
        for text, label in zip(texts, labels, strict=True):
            self.counts[label].update(bigrams(text))
        # Number of distinct bigrams, plus one for all bigrams that do not occur in the training texts.
        self.kinds = len(set().union(*self.counts.values())) + 1

    def score(self, text: str, label: int) -> float:
        """Return log p(text | class) in nats. Because of add-one smoothing, no bigram has probability 0."""
        counts = self.counts[label]
        total = counts.total() + self.kinds
        return sum(log((counts[bigram] + 1) / total) for bigram in bigrams(text))

    def classify(self, text: str) -> int:
        """Return the most probable class. Ties, including any text without bigrams, go to the smallest class number."""
        return max(self.counts, key=lambda label: (self.score(text, label), -label))

    def accuracy(self, texts: Sequence[str], labels: Sequence[int]) -> float:
        """Return the fraction of texts that are classified correctly."""
        correct = [self.classify(text) == label for text, label in zip(texts, labels, strict=True)]
        return sum(correct) / len(correct)


def bigrams(text: str) -> list[str]:
    """Return the pairs of adjacent characters in a text, after removing whitespace and U+FFFD characters."""
    return ["".join(pair) for pair in pairwise("".join(text.replace("\ufffd", "").split()))]


def known_share(texts: Sequence[str], known: set[str]) -> float:
    """Return the share of the bigrams in some texts that are in `known`."""
    found = [bigram in known for text in texts for bigram in bigrams(text)]
    return sum(found) / len(found)


def texts_of(examples: Examples, encoding: SubwordEncoding) -> tuple[list[str], list[int]]:
    """Return the text that each example predicts, and its class."""
    return [encoding.decode(example["y"][example["y"] >= 0]) for example in examples], [int(e["i"]) for e in examples]
