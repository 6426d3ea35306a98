"""Toy models whose probabilities are known by hand. No torch."""

import math
from collections.abc import Sequence

import numpy as np
from course_lib.evaluation.scoring import Scores, Tokens, Window

END = 0x10FFFF


class Uniform:
    """Every character, and the end, costs log2(entries) bits."""

    def __init__(self, entries: int, max_length: int | None = None) -> None:
        self.entries, self.max_length = entries, max_length

    def tokens(self, text: str, end: bool) -> Tokens:
        target = [*map(ord, text), *([END] if end else [])]
        return Tokens([END, *target][: len(target)], target, text)

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        return [self.scores(window) for window in windows]

    def scores(self, window: Window) -> Scores:
        return Scores(np.full(len(window.target) - window.first, -math.log(self.entries)), None)


class Recorder(Uniform):
    """A token's log probability is −(its position in the text): any token missed or scored twice changes the sum."""

    def __init__(self, max_length: int | None = None) -> None:
        super().__init__(2, max_length)
        self.seen: list[list[Window]] = []

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        self.seen.append(list(windows))
        return super().score(windows)

    def scores(self, window: Window) -> Scores:
        return Scores(-np.arange(window.start + window.first, window.start + len(window.target), dtype=float), None)


class Table:
    """A character's probability given the one before it: {"ab": P(b | a)}; "^" begins a text, "$" ends it."""

    max_length = None

    def __init__(self, table: dict[str, float]) -> None:
        self.table = table

    def tokens(self, text: str, end: bool) -> Tokens:
        target = [*map(ord, text + "$" * end)]
        return Tokens([ord("^"), *target][: len(target)], target, text)

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        return [
            Scores(
                np.log([self.table[chr(w.read[i]) + chr(w.target[i])] for i in range(w.first, len(w.target))]),
                None,
            )
            for w in windows
        ]
