"""Which class a text looks like: naive Bayes over pairs of neighbouring characters, as an outside judge of generated texts."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import log


class NaiveBayes:
    """The class whose training texts make a text's bigrams likeliest, every bigram by itself; each class equally likely before."""

    def __init__(self, texts: Sequence[str], labels: Sequence[int]) -> None:
        """Counts the bigrams of each class's texts. Raises ValueError if there are not as many labels as texts, or none."""
        self.counts: dict[int, Counter[str]] = {label: Counter() for label in sorted(set(labels))}
        if not self.counts:
            raise ValueError("no texts to learn from")
        for text, label in zip(texts, labels, strict=True):
            self.counts[label].update(bigrams(text))
        self.kinds = len(set().union(*self.counts.values())) + 1  # and one for all that were never seen

    def score(self, text: str, label: int) -> float:
        """log p(text | class) [nats]; one is added to every count, so that nothing is impossible."""
        counts = self.counts[label]
        total = counts.total() + self.kinds
        return sum(log((counts[bigram] + 1) / total) for bigram in bigrams(text))

    def classify(self, text: str) -> int:
        """The likeliest class; the smallest of equals, as for a text without bigrams."""
        return max(self.counts, key=lambda label: (self.score(text, label), -label))

    def accuracy(self, texts: Sequence[str], labels: Sequence[int]) -> float:
        """Share of the texts whose class it finds, from 0 to 1."""
        found = [self.classify(text) == label for text, label in zip(texts, labels, strict=True)]
        return sum(found) / len(found)


def bigrams(text: str) -> list[str]:
    """Pairs of neighbouring characters, white space and broken characters apart."""
    return ["".join(pair) for pair in pairwise("".join(text.replace("\ufffd", "").split()))]
