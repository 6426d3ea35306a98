"""Speeds: every engine writes the same text, the numbers are what they say, and nothing stays changed."""

import pytest
import torch
from course_lib.errors import CourseError
from course_lib.models import frozen_base
from course_lib.serving import ct2, export, latency, reader
from course_lib.serving.latency import Speed

from tests.pretrain import models

PROMPTS = [[5, 6, 7, 8], [9], [10, 11, 260], [12, 13]]


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, latency.Writer]:
    place = tmp_path_factory.mktemp("engines")
    source = models.memorized(place)
    ct2.export(source, place / "ct2")
    export.export(source, place / "ft")
    return {
        "Hugging Face": latency.hugging_face(frozen_base.load(source)),
        "our reader": latency.reader(reader.load(place / "ft")),
        "CTranslate2": latency.ct2(place / "ct2"),
    }


def test_all_write_the_same_and_go_on_behind_the_end(writers: dict[str, latency.Writer]) -> None:
    texts = [write(PROMPTS, 30) for write in writers.values()]
    assert [len(row) for row in texts[0]] == [30] * 4
    assert texts[1:] == texts[:1] * 2


def test_measuring(writers: dict[str, latency.Writer]) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        speeds = latency.measure(writers, PROMPTS, batches=(1, 3), new=8, rounds=2)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert [(speed.engine, speed.batch, speed.new, len(speed.seconds)) for speed in speeds] == [
        (name, batch, 8, 2) for batch in (1, 3) for name in writers
    ]


def test_numbers() -> None:
    fast, slow = Speed("fast", 8, 10, (1.0, 2.0, 1.0)), Speed("slow", 8, 10, (3.0, 4.0, 9.0))
    assert fast.latency == 1 and fast.tokens_per_second == 80
    assert fast.times(slow) == 3 and fast.times(fast) == 1


def test_the_warm_up_does_not_count() -> None:
    times = iter([0, 50, 100, 102, 200, 204])
    (speed,) = latency.measure({"one": lambda rows, new: [[1] * new]}, [[5]], (1,), 3, 2, clock=lambda: next(times))
    assert speed.seconds == (2, 4)


def test_an_engine_that_stops_early() -> None:
    with pytest.raises(CourseError, match=r"^short: wrote \[2\] tokens, asked for 3 each$"):
        latency.measure({"short": lambda rows, new: [[1, 2]]}, [[5]], (1,), new=3)
