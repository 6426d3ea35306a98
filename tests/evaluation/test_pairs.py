"""Minimal pairs: what is right, ties, the interval, and bad files."""

import json
from pathlib import Path

import numpy as np
import pytest
from course_lib.errors import CourseError
from course_lib.evaluation import pairs
from course_lib.evaluation.pairs import Pair

from tests.evaluation.toys import Table, Uniform

TABLE = {"^a": 0.5, "^b": 0.3, "ab": 0.2, "ba": 0.9, "aa": 0.1}


def test_the_more_probable_sentence_by_hand() -> None:
    # ab 0.10, ba 0.27; aa 0.05
    known = [Pair("x", "ba", "ab"), Pair("x", "aa", "ab"), Pair("y", "ab", "aa")]
    assert pairs.judge(Table(TABLE), known) == [1, 0, 1]
    found = pairs.accuracies(known, [1, 0, 1])
    assert list(found) == ["x", "y", "all"]
    assert (found["x"].accuracy, found["y"].accuracy, found["all"].accuracy) == pytest.approx((1 / 2, 1, 2 / 3))


def test_a_tie_counts_one_half() -> None:
    assert pairs.judge(Uniform(5), [Pair("x", "ab", "ba"), Pair("x", "a", "ab"), Pair("x", "ab", "a")]) == [0.5, 1, 0]


def test_the_interval_is_that_of_the_binomial() -> None:
    rng = np.random.default_rng(3)
    right = (rng.random(400) < 0.7).astype(float).tolist()
    found = pairs.accuracies([Pair("x", "a", "b")] * 400, right)["all"]
    share = sum(right) / 400
    half = 1.96 * (share * (1 - share) / 400) ** 0.5
    assert found.accuracy == pytest.approx(share) and found.pairs == 400
    assert (found.low, found.high) == pytest.approx((share - half, share + half), abs=0.01)
    assert pairs.accuracies([Pair("x", "a", "b")] * 400, right)["all"] == found


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("\n\n", "no pair"),
        ('{"phenomenon": "x", "good": "a", "bad": "b"}\n[1]\n', "line 2: expected"),
        ('{"phenomenon": "x", "good": "a", "bad": "a"}\n', "line 1: .* different"),
    ],
)
def test_bad_files(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "pairs.jsonl").write_text(lines, encoding="utf8")
    with pytest.raises(CourseError, match=message):
        pairs.read_pairs(tmp_path / "pairs.jsonl")


def test_a_file_with_more_keys_and_empty_lines(tmp_path: Path) -> None:
    row = {"phenomenon": "x", "good": "a", "bad": "b", "note": 1}
    (tmp_path / "pairs.jsonl").write_text(f"\n{json.dumps(row)}\n\n", encoding="utf8")
    assert pairs.read_pairs(tmp_path / "pairs.jsonl") == [Pair("x", "a", "b")]


def test_a_lone_surrogate_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COURSE_QUIET", "1")
    row = {"phenomenon": "x", "good": "a\ud800", "bad": "😀"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row), encoding="utf8")
    assert pairs.read_pairs(tmp_path / "pairs.jsonl") == [Pair("x", "a\ufffd", "😀")]
    assert capsys.readouterr().err == ""
