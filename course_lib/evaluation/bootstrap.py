"""Bootstrap intervals of a mean and of the mean difference between two results on the same cases.

Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13: the percentile interval.
"""

from collections.abc import Sequence

import numpy as np

# Resamples for an interval, and the share of them that it covers.
RESAMPLES, COVERED = 10_000, 0.95


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of values and its 95 % interval."""
    rng = np.random.default_rng(0)
    known = np.asarray(values, dtype=float)
    means = known[rng.integers(0, len(known), (RESAMPLES, len(known)))].mean(1)
    low, high = np.quantile(means, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return float(known.mean()), float(low), float(high)


def difference(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of `first` minus `second`, case by case, and its 95 % interval (paired bootstrap)."""
    return mean_interval([one - other for one, other in zip(first, second, strict=True)])
