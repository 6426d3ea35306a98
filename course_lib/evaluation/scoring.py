"""The interface of a model that can be evaluated, and the token sequences that it scores. This module has no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Tokens:
    """A text as a model reads and predicts it: `target[i]` is predicted from `read[: i + 1]`.

    `read` starts with the token that precedes a text. It can differ from `target` at other positions: GPTSAN reads a
    separator where it predicts a sentence end. `text` is what the targets decode to, without the end token.
    """

    read: list[int]
    target: list[int]
    text: str


@dataclass(frozen=True)
class Window:
    """Consecutive tokens of a text, from its token `start`. Only `target[first:]` is scored; the rest is context."""

    read: list[int]
    target: list[int]
    start: int
    first: int


@dataclass(frozen=True)
class Scores:
    """Scores of consecutive tokens."""

    log_probabilities: npt.NDArray[np.float64]  # [tokens], natural logarithm
    greedy: npt.NDArray[np.bool_] | None  # [tokens], whether the token is the most probable one; None: not computed

    @property
    def total(self) -> float:
        """Sum of the log probabilities [nats]."""
        return float(self.log_probabilities.sum())


class ScoringModel(Protocol):
    """A model that gives a probability to every token of a raw text."""

    @property
    def max_length(self) -> int | None:
        """Most tokens in a window; None if there is no limit."""

    def tokens(self, text: str, end: bool) -> Tokens:
        """Return the tokens for a raw text; with `end`, the last one is the token that ends a document."""

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return the scores of each window, for `target[first:]`. The windows of a batch do not affect each other."""


@dataclass(frozen=True)
class Sampling:
    """How a model continues texts."""

    tokens: int  # most tokens of a continuation
    temperature: float = 0.0  # 0: the most probable token each time; otherwise, tokens are sampled
    top_p: float = 1.0  # from the most probable ones, which have this share of the probability
    seed: int | None = None  # None: the generator's default


@runtime_checkable
class GeneratingModel(ScoringModel, Protocol):
    """A scoring model that also continues texts."""

    @property
    def default_top_p(self) -> tuple[float, ...]:
        """Values of `top_p` that a user who names none gets samples for."""

    def complete(self, prompts: Sequence[str], sampling: Sampling) -> list[str]:
        """Return a continuation of each raw prompt.

        A prompt is shortened from its beginning if both together may be longer than `max_length`.
        """


def one_line(text: str) -> str:
    """Return a text without its line breaks."""
    return "".join(text.splitlines())
