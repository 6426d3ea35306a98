"""A parallel map that preserves the order of its items and limits memory use.

It does not group items into batches. Pass items of about 1 MB, so that the work is worth the transfer to another
process.
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
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from course_lib.errors import CourseError

# signals that `course` turns into an exception so that it can clean up
TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)
Item = TypeVar("Item")
Result = TypeVar("Result")


def default_workers() -> int:
    """Return the number of cores that this process may run on, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """Yield function(item) for every item, in order, computed by `workers` processes.

    At most 2·workers items are in progress, so memory use does not grow with the input. The results do not depend on
    the number of workers. With one worker, everything runs in this process. `function` and the items must be picklable.

    Raises CourseError if a worker process dies. If `items` raises CourseError, the results for the earlier items are
    yielded first.
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
                # The input is bad from here on; the results for the earlier items are still yielded.
                except CourseError as error:
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
    """Choose the multiprocessing start method: fork if this process has one thread, otherwise forkserver or spawn.

    Forking takes only milliseconds. However, in a process with threads (from a notebook kernel or a numeric library's
    thread pool), the copy may inherit a lock that is never released.
    """
    if _single_threaded():
        return multiprocessing.get_context("fork")
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Only the first call in this process has an effect, because the fork server starts once.
    context.set_forkserver_preload([_module(function)])
    return context


def _single_threaded() -> bool:
    """Return whether this process has exactly one thread, counting those of native libraries; False if not on Linux."""
    tasks = Path("/proc/self/task")
    return tasks.is_dir() and len(list(tasks.iterdir())) == 1


def _end_with_parent() -> None:
    """Make this worker exit on a termination signal or when its parent exits. Called when the worker starts."""
    for number in TERMINATIONS:
        # `nohup` makes a process ignore SIGHUP.
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
    """Protect worker processes that are started inside the block.

    Workers ignore Ctrl-C, which the parent process handles. Other signals are blocked until the worker has installed
    its own handlers, so that it does not run the parent's handlers.

    By default, multiprocessing imports the caller's script again in each worker to make its names available. A function
    from a module does not need them, and a script without a main guard would start workers of its own. The script is
    therefore hidden from multiprocessing.
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
