"""What a call allocates, by PyTorch's own record: shared by the tests of the memory planners."""

import gc
from collections.abc import Callable
from typing import TypeVar

from torch.profiler import ProfilerActivity, profile

Result = TypeVar("Result")


def allocated(work: Callable[[], Result]) -> tuple[int, int, Result]:
    """Returns (bytes kept when `work` ends, peak bytes during it, its result).

    The profiler remembers every block that it once saw. Recomputed layers leave reference cycles that hold such blocks (600 kB
    in these tests), so a garbage collection in the middle of a later call would be counted as memory which that call gave back.
    Hence the collection before, and none during, the call.
    """
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
            result = work()
    finally:
        if was_enabled:
            gc.enable()
    events = sorted(
        (e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()
    )
    kept = peak = 0
    for event in events:
        kept += event.nbytes()
        peak = max(peak, kept)
    return kept, peak, result
