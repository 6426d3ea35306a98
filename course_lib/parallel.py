"""A parallel map that keeps order and bounds memory. It does not batch: give it items worth a trip (about 1 MB)."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from course_lib.errors import CourseError

Item = TypeVar("Item")
Result = TypeVar("Result")


def default_workers() -> int:
    """The number of cores this process may use (a container's share, not the machine's)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """Yields function(item) for every item, in order, from `workers` processes.

    At most 2·workers items are under way, so memory does not grow with the input. The results are the same for any
    number of workers; with one worker everything runs in this process. A worker that dies raises CourseError; a CourseError
    of `items` is raised after the results of the items before it.
    `function` and the items travel by pickle.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    # forkserver: workers start from a small clean process, never as a copy of a notebook kernel with its threads
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context(method)) as pool:
        waiting: deque[Future[Result]] = deque()
        source, broken = iter(items), None
        try:
            while True:
                try:
                    waiting.append(_submit(pool, function, next(source)))
                except StopIteration:
                    break
                except CourseError as error:  # the input breaks here: what was read before it is still delivered
                    broken = error
                    break
                if len(waiting) >= 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
            if broken:
                raise broken
        except BrokenProcessPool:
            raise CourseError(
                "a worker process ended before its work was done: out of memory (try a smaller --workers), or a script without "
                "`if __name__ == '__main__':`"
            ) from None
        finally:
            for future in waiting:
                future.cancel()


def _submit(pool: ProcessPoolExecutor, function: Callable[[Item], Result], item: Item) -> "Future[Result]":
    """Submits with Ctrl-C held back, so that the workers this starts leave it to their parent and print no traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(function, item)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
