"""Timing by turns: these machines are noisy, so each side runs in turn and the median of the paired ratios is quoted."""

import statistics
import time
from collections.abc import Callable
from typing import Any

Run = Callable[[], Any]
Clock = Callable[[], float]


def seconds(run: Run, clock: Clock = time.perf_counter) -> float:
    """How long one call takes, by `clock`."""
    started = clock()
    run()
    return clock() - started


def by_turns(ours: Run, peer: Run, rounds: int = 5, clock: Clock = time.perf_counter) -> tuple[float, float, float]:
    """(median seconds of ours, of the peer, median of ours/peer pair by pair), after one warm-up of each."""
    seconds(ours), seconds(peer)
    pairs = [(seconds(ours, clock), seconds(peer, clock)) for _ in range(rounds)]
    mine, other = zip(*pairs, strict=True)
    return statistics.median(mine), statistics.median(other), statistics.median(a / b for a, b in pairs)
