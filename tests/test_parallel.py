"""The ordered map: order, bounded memory, and what happens when something breaks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from course_lib.errors import CourseError
from course_lib.parallel import ordered_map

from tests.waiting import LIMIT, until


def slow_first(number: int) -> int:
    """The earlier the item, the longer it takes."""
    time.sleep(max(0, 4 - number) * 0.02)
    return number * number


def die_at_five(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def pid(_number: int) -> int:
    return os.getpid()


def interrupts_are_held_back(_number: int) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def nap(number: int) -> int:
    time.sleep(60)
    return number


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_order_for_any_number_of_workers(workers: int) -> None:
    assert list(ordered_map(slow_first, range(20), workers)) == [n * n for n in range(20)]
    assert list(ordered_map(slow_first, [], workers)) == []


@pytest.mark.parametrize(("workers", "ahead"), [(1, 1), (2, 4)])
def test_no_more_is_drawn_than_is_under_way(workers: int, ahead: int) -> None:
    drawn = 0

    def items() -> Iterator[int]:
        nonlocal drawn
        for number in range(200):
            drawn += 1
            yield number

    results = ordered_map(abs, items(), workers)
    assert drawn == 0
    for done, result in enumerate(results, 1):
        assert result == done - 1
        assert drawn <= done - 1 + ahead
    assert drawn == 200


def test_a_killed_worker_gives_one_clear_error() -> None:
    with pytest.raises(CourseError, match="--workers"):
        list(ordered_map(die_at_five, range(1000), 2))


def test_work_is_shared_and_the_processes_end_with_the_map() -> None:
    results = ordered_map(pid, range(1000), 2)
    seen = {next(results) for _ in range(200)}
    assert os.getpid() not in seen and 1 <= len(seen) <= 2
    results.close()  # type: ignore[attr-defined]
    assert not any(psutil.pid_exists(number) for number in seen)


def test_workers_leave_ctrl_c_to_their_parent() -> None:
    assert set(ordered_map(interrupts_are_held_back, range(10), 2)) == {True}
    assert not interrupts_are_held_back(0)


def test_a_killed_parent_leaves_neither_workers_nor_folders(tmp_path: Path) -> None:
    script = "from tests.test_parallel import *; print('started', flush=True); list(ordered_map(nap, range(4), 2))"
    where: Any = {"cwd": Path(__file__).parents[1], "env": os.environ | {"TMPDIR": str(tmp_path)}}
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, **where)
    assert parent.stdout and parent.stdout.readline() == b"started\n"
    family = psutil.Process(parent.pid)
    until(lambda: len(family.children(recursive=True)) >= 2, parent)
    time.sleep(0.5)  # workers have begun
    workers = family.children(recursive=True)
    parent.kill()
    parent.wait()
    _gone, alive = psutil.wait_procs(workers, timeout=LIMIT)
    assert len(workers) >= 2 and not alive
    assert list(tmp_path.iterdir()) == []
