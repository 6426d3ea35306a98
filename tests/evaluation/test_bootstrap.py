"""Bootstrap intervals of a mean and of a paired difference."""

import numpy as np
import pytest
from course_lib.evaluation.bootstrap import difference, mean_interval


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    mean, low, high = mean_interval(values.tolist())
    assert mean == pytest.approx(values.mean())
    half = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.02)


def test_a_difference_is_paired() -> None:
    first = np.random.default_rng(1).normal(size=200)
    # The cases differ much, the two results on a case hardly.
    assert difference((first + 0.1).tolist(), first.tolist()) == pytest.approx((0.1, 0.1, 0.1))
    assert difference([1.0, 0.0], [0.0, 1.0])[0] == 0
