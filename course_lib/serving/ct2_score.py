"""The probability that a CTranslate2 model gives to texts, for course_lib.evaluation."""

from collections.abc import Sequence

import numpy as np

from course_lib.evaluation.scoring import Scores, Tokens, Window
from course_lib.generation.codec import require_rows
from course_lib.serving.ct2_generate import Ct2Generator


class Ct2Scorer:
    """The model of a `Ct2Generator` as a `ScoringModel`."""

    def __init__(self, generator: Ct2Generator) -> None:
        """Take the model and the codec of a generator."""
        self.generator = generator

    @property
    def max_length(self) -> int:
        """The model's maximum sequence length [tokens]."""
        return self.generator.positions

    def tokens(self, text: str, end: bool) -> Tokens:
        """Return the tokens for a raw text."""
        generator = self.generator
        ids = require_rows(generator.codec, generator.codec.encode(text), len(generator.tokens))
        target = [*ids, generator.end] if end else ids
        first = [*generator.codec.opening] or [generator.end]
        return Tokens([*first, *target][: len(target)], target, generator.codec.continuation([], ids))

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return the scores of each window, for `target[first:]`."""
        rows = [[*window.read, window.target[-1]] for window in windows]
        # CTranslate2 scores each token behind the first of a row.
        results = self.generator.score(rows)
        return [
            Scores(np.array(log_probabilities[window.first :], np.float64), None)
            for log_probabilities, window in zip(results, windows, strict=True)
        ]
