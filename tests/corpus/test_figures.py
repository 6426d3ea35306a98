"""What the figures of chapter 1 show."""

import numpy as np
import pytest
from course_lib.corpus import figures
from course_lib.corpus.banding import probability


def test_the_banding_curve_shows_the_formula_and_the_measured_shares() -> None:
    similarity = np.repeat([0.02, 0.52, 0.97], 40)
    candidates = np.r_[np.zeros(40), np.tile([0, 1, 1, 1], 10), np.ones(40)].astype(bool)
    axis = figures.banding_curve(similarity, candidates, bands=8, rows=3, limit=0.5).axes[0]
    curves = {line.get_label(): line for line in axis.lines}
    x, y = curves["8 bands of 3 rows, computed"].get_data()
    assert y == pytest.approx(probability(x, 8, 3))
    assert curves["repeats from 0.5"].get_xdata()[0] == 0.5
    # The other ways to cut 24 hashes: 24 bands of one row, and 2 of twelve.
    assert sorted(text.get_text() for text in axis.texts) == ["2 × 12", "24 × 1"]
    measured = axis.containers[0].lines[0].get_xydata()
    assert measured.tolist() == [pytest.approx(point) for point in ((0.02, 0.0), (0.52, 0.75), (0.97, 1.0))]
