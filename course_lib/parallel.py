"""A parallel map that preserves the order of its items and limits memory use.

Pass items of about 1 MB, so that the work is worth the transfer to another process. joblib's generator is not used: it
draws the whole input while the caller waits, and its workers outlive a killed parent.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from typing import TypeVar

from course_lib.errors import CourseError
from course_lib.language.words import tr, tr_noop

# signals that `course` turns into an exception so that it can clean up
TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)
Item = TypeVar("Item")
Result = TypeVar("Result")


def default_workers() -> int:
    """Return the number of cores that this process may run on, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """Yield function(item) for every item, in order, computed by `workers` processes; one worker or item needs none.

    At most 2·workers items are in progress, so memory use does not grow with the input. Raises CourseError if a worker
    dies.
    """
    source = iter(items)
    first = list(islice(source, 2)) if workers > 1 else []
    if len(first) < 2:
        yield from map(function, chain(first, source))
    else:
        yield from _in_processes(function, chain(first, source), workers)


def _in_processes(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    # A forked worker could inherit a lock that another thread holds, and numpy alone starts threads.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _end_with_parent)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            with _starting_workers():
                waiting.append(pool.submit(function, item))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        message = tr_noop("a worker process ended before its work was done: memory? Try smaller --workers")
        raise CourseError(tr(message)) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Make this worker exit on a termination signal or when its parent exits. Called when the worker starts."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATIONS)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _starting_workers() -> Iterator[None]:
    """Start worker processes inside the block.

    Workers inherit the blocked signals: they leave Ctrl-C to the parent, and accept the others when they are ready.
    They do not run the caller's script, as they otherwise would to know its names: a script without a main guard would
    start workers, too.
    """
    main = sys.modules["__main__"]
    hidden = {name: getattr(main, name) for name in ("__spec__", "__file__") if hasattr(main, name)}
    vars(main).update(dict.fromkeys(hidden))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *TERMINATIONS})
    try:
        yield
    finally:
        vars(main).update(hidden)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
