"""Text classification by naive Bayes over character bigrams: a judge of texts that is not the model that wrote them."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import log


class NaiveBayes:
    """Naive Bayes classifier over character bigrams with a uniform prior and add-one smoothing."""

    def __init__(self, texts: Sequence[str], labels: Sequence[int]) -> None:
        """Count each class's bigrams. Raises ValueError without texts, or for unequal numbers of texts and labels."""
        self.counts: dict[int, Counter[str]] = {label: Counter() for label in sorted(set(labels))}
        if not self.counts:
            raise ValueError("no texts to learn from")
        for text, label in zip(texts, labels, strict=True):
            self.counts[label].update(bigrams(text))
        # Distinct bigrams, plus one for all bigrams that do not occur in the training texts.
        self.kinds = len(set().union(*self.counts.values())) + 1

    def score(self, text: str, label: int) -> float:
        """Return log p(text | class) in nats. Every count is increased by one, so that no bigram has probability 0."""
        counts = self.counts[label]
        total = counts.total() + self.kinds
        return sum(log((counts[bigram] + 1) / total) for bigram in bigrams(text))

    def classify(self, text: str) -> int:
        """Return the most probable class; of equally probable ones, as for a text without bigrams, the smallest."""
        return max(self.counts, key=lambda label: (self.score(text, label), -label))

    def accuracy(self, texts: Sequence[str], labels: Sequence[int]) -> float:
        """Return the share of the texts that are classified correctly, from 0 to 1."""
        correct = [self.classify(text) == label for text, label in zip(texts, labels, strict=True)]
        return sum(correct) / len(correct)


def bigrams(text: str) -> list[str]:
    """Return the pairs of adjacent characters of a text, after removing white space and U+FFFD characters."""
    return ["".join(pair) for pair in pairwise("".join(text.replace("\ufffd", "").split()))]
