"""The minimal pairs that come with the course."""

import json
from collections import Counter

from course_lib import paths

PAIRS = [json.loads(line) for line in paths.data("minimal_pairs.jsonl").read_text(encoding="utf8").splitlines()]


def test_there_are_enough_pairs_of_each_phenomenon() -> None:
    counts = Counter(pair["phenomenon"] for pair in PAIRS)
    assert len(counts) >= 10 and sum(counts.values()) >= 400 and min(counts.values()) >= 30


def test_no_sentence_stands_twice() -> None:
    sentences = [pair[side] for pair in PAIRS for side in ("good", "bad")]
    assert len(set(sentences)) == len(sentences)
    assert all(8 <= len(sentence) <= 31 and sentence.endswith("。") for sentence in sentences)


def test_the_shorter_sentence_is_no_guide() -> None:
    longer = sum(len(pair["bad"]) > len(pair["good"]) for pair in PAIRS)
    shorter = sum(len(pair["bad"]) < len(pair["good"]) for pair in PAIRS)
    assert (longer - shorter) / len(PAIRS) < 0.1
