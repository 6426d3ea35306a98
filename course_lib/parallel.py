"""A parallel map that keeps order and bounds memory. It does not batch: give it items worth a trip (about 1 MB)."""

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
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from course_lib.errors import CourseError

TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)  # that the `course` command turns into an exception, to clean up
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
    with ProcessPoolExecutor(workers, _context(function), initializer=_end_with_parent) as pool:
        waiting: deque[Future[Result]] = deque()
        source, broken = iter(items), None
        try:
            while True:
                try:
                    item = next(source)
                except StopIteration:
                    break
                except CourseError as error:  # the input breaks here: what was read before it is still delivered
                    broken = error
                    break
                with _starting_workers(function):
                    waiting.append(pool.submit(function, item))
                if len(waiting) >= 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
            if broken:
                raise broken
        except BrokenProcessPool:
            raise CourseError(
                "a worker process ended before its work was done: out of memory? Try a smaller --workers"
            ) from None
        finally:
            for future in waiting:
                future.cancel()


def _module(function: Callable[..., Any]) -> str:
    return str((function.func if isinstance(function, partial) else function).__module__)


def _context(function: Callable[..., Any]) -> Any:
    """How workers start: as copies of this process where nothing can go wrong with that, which takes milliseconds; else cleanly.

    A copy of a process with threads (a notebook's kernel, a numeric library's pool) may inherit a lock that nobody will ever open.
    """
    if _single_threaded():
        return multiprocessing.get_context("fork")
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_module(function)])  # heeded by the first map of this process
    return context


def _single_threaded() -> bool:
    """Whether this process has one thread, those of native libraries counted. Only Linux can tell."""
    tasks = Path("/proc/self/task")
    return tasks.is_dir() and len(list(tasks.iterdir())) == 1


def _end_with_parent() -> None:
    """In a worker: ends at once when terminated, and when the process that it works for was killed."""
    for number in TERMINATIONS:
        # `nohup` ignores SIGHUP
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATIONS)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _starting_workers(function: Callable[..., Any]) -> Iterator[None]:
    """Processes started in this block leave Ctrl-C to their parent, and do not run the caller's script again.

    Nor do they run the parent's handlers of other signals: these wait until the worker has set its own.
    multiprocessing would run it, to have its names; a function of a module does not need them, and a script without a main guard
    would start workers of its own.
    """
    main = sys.modules["__main__"]
    ours = _module(function) != "__main__"
    hidden = {name: getattr(main, name) for name in ("__spec__", "__file__") if ours and hasattr(main, name)}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *TERMINATIONS})
    for name in hidden:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
