"""What the figures of chapter 3 show."""

import numpy as np
import pytest
from course_lib.evaluation.bits import Bits
from course_lib.subword import figures

from tests.subword.test_compare import longer_codec


def test_the_parts_of_a_bar_are_the_whole_vocabulary() -> None:
    codecs = {"a": longer_codec("ab", "abc"), "b": longer_codec("ab", "bc", "abcabc")}
    figure = figures.entry_lengths(codecs)
    parts = np.array([container.datavalues for container in figure.axes[0].containers])
    # special tokens, 1 character, 2, 3, 4 or more
    assert parts.T.tolist() == [[3, 3, 1, 1, 0], [3, 3, 2, 0, 1]]
    assert parts.sum(0).tolist() == [codec.tokenizer.get_vocab_size() for codec in codecs.values()]


def test_small_models_are_drawn_with_a_point_per_seed() -> None:
    rows = {
        "long tokens": [Bits(1, 100, 300, 50, 700.0, 0), Bits(1, 100, 300, 50, 720.0, 0)],
        "short tokens": [Bits(1, 100, 300, 80, 690.0, 0), Bits(1, 100, 300, 80, 650.0, 0)],
    }
    axis = figures.small_models(rows).axes[0]
    points = [collection.get_offsets().tolist() for collection in axis.collections[::2]]
    assert points == [[[7.0, 0], [7.2, 0]], [[6.9, 1], [6.5, 1]]]
    means = [collection.get_segments()[0][0][0] for collection in axis.collections[1::2]]
    assert means == pytest.approx([7.1, 6.7])
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == ["long tokens\n2.00 chars/token", "short tokens\n1.25 chars/token"]
