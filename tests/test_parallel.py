"""The ordered map: order, bounded memory, and what happens when something breaks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from course_lib.errors import CourseError
from course_lib.parallel import default_workers, ordered_map

from tests.waiting import LIMIT, until


def slow_first(number: int) -> int:
    """The earlier the item, the longer it takes."""
    time.sleep(max(0, 4 - number) * 0.02)
    return number * number


def fail_at_five(number: int) -> int:
    if number == 5:
        raise CourseError("item 5 is bad")
    return number


def die_at_five(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def pid(_number: int) -> int:
    return os.getpid()


def interrupts_are_held_back(_number: int) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def breaking(at: int, error: Exception) -> Iterator[int]:
    yield from range(at)
    raise error


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
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


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("at", [0, 1, 9])
def test_an_error_of_the_source_comes_after_the_results_before_it(workers: int, at: int) -> None:
    got = []
    with pytest.raises(CourseError, match="^broken here$"):
        for result in ordered_map(slow_first, breaking(at, CourseError("broken here")), workers):
            got.append(result)
    assert got == [n * n for n in range(at)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bug_of_the_source_keeps_its_type(workers: int) -> None:
    with pytest.raises(ZeroDivisionError):
        list(ordered_map(abs, breaking(3, ZeroDivisionError()), workers))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_the_function_comes_in_its_place(workers: int) -> None:
    results = ordered_map(fail_at_five, range(100), workers)
    assert [next(results) for _ in range(5)] == list(range(5))
    with pytest.raises(CourseError, match="^item 5 is bad$"):
        next(results)


def test_a_killed_worker_gives_one_clear_error() -> None:
    with pytest.raises(CourseError, match="a worker process ended before its work was done: .*--workers") as caught:
        list(ordered_map(die_at_five, range(1000), 2))
    assert "\n" not in str(caught.value)


def test_work_is_shared_and_the_processes_end_with_the_map() -> None:
    results = ordered_map(pid, range(1000), 2)
    seen = {next(results) for _ in range(200)}
    assert os.getpid() not in seen
    assert 1 <= len(seen) <= 2
    results.close()  # type: ignore[attr-defined]
    assert not any(psutil.pid_exists(number) for number in seen)


def test_one_worker_needs_no_process() -> None:
    assert set(ordered_map(pid, range(3), 1)) == {os.getpid()}


def test_workers_leave_ctrl_c_to_their_parent() -> None:
    assert set(ordered_map(interrupts_are_held_back, range(10), 2)) == {True}
    assert not interrupts_are_held_back(0)


def test_default_workers_respects_the_cores_given_to_this_process() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system has no processor affinity")
    cores = os.sched_getaffinity(0)
    assert default_workers() == len(cores)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert default_workers() == 1
    finally:
        os.sched_setaffinity(0, cores)


def nap(number: int) -> int:
    time.sleep(60)
    return number


@pytest.mark.parametrize("threads", [False, True])
def test_workers_end_when_their_parent_is_killed(threads: bool) -> None:
    script = (
        "import threading, time\n"
        + ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n" if threads else "")
        + "from course_lib.parallel import ordered_map\nfrom tests.test_parallel import nap\n"
        "print('started', flush=True)\nlist(ordered_map(nap, range(4), 2))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
    assert parent.stdout and parent.stdout.readline() == b"started\n"
    family = psutil.Process(parent.pid)
    until(lambda: len(family.children(recursive=True)) >= 2, parent)
    time.sleep(0.5)  # workers have begun
    workers = family.children(recursive=True)
    parent.kill()
    parent.wait()
    _gone, alive = psutil.wait_procs(workers, timeout=LIMIT)
    assert len(workers) >= 2 and not alive, alive
