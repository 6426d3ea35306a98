"""Scores of texts of any length, by windows that overlap.

A text that fits the model is one window. In a longer text, the first window scores all its tokens. Each later window
scores the next `stride` tokens and reads the `window - stride` tokens before them as context, so every token is scored
exactly once. This is the strided perplexity of https://huggingface.co/docs/transformers/perplexity.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pydantic.dataclasses import dataclass

from course_lib.errors import UsageError
from course_lib.evaluation.scoring import Scores, ScoringModel, Tokens, Window
from course_lib.settings.config import STRICT, setting

# Window of a model without a limit [tokens]; only `stride` needs one then.
UNLIMITED = 1024


@dataclass(frozen=True, config=STRICT)
class WindowSettings:
    """How texts are cut into windows and batches. The batch size does not change the result."""

    window: int | None = setting(None, "most tokens in a window; unset: all that the model has room for", ge=2)
    stride: int | None = setting(
        None,
        "tokens that each window after the first scores; unset: half a window; the rest of a window is context",
        ge=1,
    )
    batch_size: int = setting(8, "windows per forward pass", ge=1, le=65536)

    def sizes(self, max_length: int | None) -> tuple[int | None, int]:
        """Return window and stride [tokens] for a model with this maximum length; window None: there is no limit."""
        if self.window and max_length and self.window > max_length:
            raise UsageError(f"window: {self.window} is not allowed: the model has room for {max_length} tokens")
        window = self.window or max_length
        stride = self.stride or max((window or UNLIMITED) // 2, 1)
        if window and stride > window:
            raise UsageError(f"stride: {stride} is not allowed: more than the window ({window})")
        return window, stride


def windows(tokens: Tokens, size: int | None, stride: int) -> Iterator[Window]:
    """Yield the windows of a text, in order; `size` None: one window."""
    total = len(tokens.target)
    size = size or total
    scored = 0
    while scored < total:
        stop = min(scored + stride if scored else size, total)
        start = max(stop - size, 0)
        yield Window(tokens.read[start:stop], tokens.target[start:stop], start, scored - start)
        scored = stop


def score(
    model: ScoringModel,
    sequences: Sequence[Tokens],
    settings: WindowSettings | None = None,
    bar: Any = None,
    units: float = 0,
) -> list[Scores]:
    """Return the scores of every token of each sequence; `units` is what all of them together advance the bar by."""
    settings = settings or WindowSettings()
    size, stride = settings.sizes(model.max_length)
    work = [(index, window) for index, tokens in enumerate(sequences) for window in windows(tokens, size, stride)]
    # Windows of similar length share a batch, so that little of it is padding.
    order = sorted(range(len(work)), key=lambda number: -len(work[number][1].read))
    found: dict[int, Scores] = {}
    for at in range(0, len(order), settings.batch_size):
        batch = order[at : at + settings.batch_size]
        found |= zip(batch, model.score([work[number][1] for number in batch]), strict=True)
        if bar is not None:
            bar.update(units * len(batch) / len(work))
    parts: list[list[Scores]] = [[] for _ in sequences]
    for number, (index, _) in enumerate(work):
        parts[index].append(found[number])
    return [_joined(part) for part in parts]


def _joined(parts: Sequence[Scores]) -> Scores:
    log_probabilities = np.concatenate([np.zeros(0), *(part.log_probabilities for part in parts)])
    known = [part.greedy for part in parts if part.greedy is not None]
    return Scores(log_probabilities, np.concatenate(known) if known and len(known) == len(parts) else None)
