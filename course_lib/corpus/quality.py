"""A learned quality score: logistic regression over hashed character n-grams, wanted against unwanted text.

The idea is that of the filter in "Language Models are Few-Shot Learners" (Brown et al. 2020, appendix A,
https://arxiv.org/abs/2005.14165): a linear classifier separates curated text from raw web text. The score says how
much a text resembles the wanted texts in its characters. It learns their style, too, and does not check facts.
"""

import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from course_lib.corpus.dedup import folded, gram_hashes
from course_lib.errors import CourseError
from course_lib.files import atomic_write, require_file

SIZES = (1, 2, 3)
BITS = 16
MIX = np.uint64(0x9E3779B97F4A7C15)
EPOCHS = 20
LEARNING_RATE = 4.0
Features = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


class Quality(NamedTuple):
    """A trained classifier."""

    weights: npt.NDArray[np.float32]  # [2 ** BITS]
    bias: float

    def score(self, text: str) -> float:
        """Return the probability, 0 to 1, that a text is one of the wanted texts."""
        buckets, values = features(text)
        return _sigmoid(float(self.weights[buckets] @ values) + self.bias)


def features(text: str) -> Features:
    """Return the buckets of a text's n-grams and the square roots of their counts, scaled to unit length."""
    codes = folded(text)
    if not len(codes):
        return np.empty(0, dtype=np.int64), np.empty(0)
    hashes = np.concatenate([gram_hashes(codes, size) for size in SIZES])
    buckets, counts = np.unique((hashes * MIX) >> np.uint64(64 - BITS), return_counts=True)
    return buckets.astype(np.int64), np.sqrt(counts / counts.sum())


def train_quality(wanted: Sequence[str], unwanted: Sequence[str], seed: int = 1) -> Quality:
    """Train by averaged SGD; both classes have equal weight. The result depends only on texts and seed.

    Raises CourseError if one of the two classes has no text.
    """
    if not wanted or not unwanted:
        raise CourseError("quality: a classifier needs documents of both classes; one of them has none")
    examples = [(features(text), label) for label, part in ((1, wanted), (0, unwanted)) for text in part]
    share = {1: len(examples) / (2 * len(wanted)), 0: len(examples) / (2 * len(unwanted))}
    # `late` holds each update times its step, so that weights - late / steps is the average over all steps.
    weights, late, bias, late_bias, step = np.zeros(2**BITS), np.zeros(2**BITS), 0.0, 0.0, 0
    rng = np.random.default_rng(seed)
    for _ in range(EPOCHS):
        for at in rng.permutation(len(examples)):
            (buckets, values), label = examples[at]
            error = label - _sigmoid(float(weights[buckets] @ values) + bias)
            change = LEARNING_RATE * share[label] * error
            weights[buckets] += change * values
            late[buckets] += step * change * values
            bias += change
            late_bias += step * change
            step += 1
    return Quality((weights - late / step).astype(np.float32), bias - late_bias / step)


def save_quality(quality: Quality, target: Path) -> None:
    """Write a classifier as an .npz file, 234 KB from the bundled texts."""
    with atomic_write(target) as file:
        np.savez_compressed(file, weights=quality.weights, bias=np.float64(quality.bias))


@cache
def load_quality(path: Path) -> Quality:
    """Read a classifier, once per process. Raises CourseError if the file is not one."""
    try:
        with np.load(require_file(path), allow_pickle=False) as stored:
            quality = Quality(stored["weights"], float(stored["bias"]))
    except (ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile) as error:
        raise CourseError(f"{path}: is not a quality classifier; train one by `course corpus quality`") from error
    if quality.weights.shape != (2**BITS,):
        raise CourseError(f"{path}: has weights of shape {quality.weights.shape}; {(2**BITS,)} is needed")
    return quality


def _sigmoid(value: float) -> float:
    return float(1 / (1 + np.exp(-np.clip(value, -50, 50))))
