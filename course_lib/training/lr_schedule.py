"""The learning-rate schedule as a function of progress: of the step or, with engine.max_seconds, of the time."""

import math

from course_lib.errors import UsageError
from course_lib.training.settings import RateConfig


def learning_rate(rate: RateConfig, step: int, last_step: int) -> float:
    """Return the learning rate for an optimizer step, counted from 1."""
    return rate_at(rate, step, warmup_steps(rate, last_step), rate.decay_steps or last_step)


def learning_rate_at_time(rate: RateConfig, seconds: float, max_seconds: float) -> float:
    """Return the learning rate for a step that begins `seconds` after the first one of a run of `max_seconds`."""
    return rate_at(rate, seconds, rate.warmup_rate * max_seconds, max_seconds)


def rate_at(rate: RateConfig, position: float, warmup: float, end: float) -> float:
    """Return the learning rate at a position of the training; all three numbers are steps, or all are seconds.

    The rate rises linearly to `max` up to `warmup`, falls to `min` up to `end`, and then stays at `min`. It falls along
    half a cosine or a straight line, as CosineAnnealingWithWarmupDecay in FleetX (`examples/gpt/single`), or, as a
    trapezoid, only in the last `decay_rate` of the length, along a straight line.
    """
    if warmup and position <= warmup:
        return rate.max * position / warmup
    if position >= end:
        return rate.min
    if rate.decay == "trapezoid":
        left = min(1.0, (end - position) / (rate.decay_rate * end))
    else:
        share = (position - warmup) / (end - warmup)
        left = 1 - share if rate.decay == "linear" else 0.5 * (1 + math.cos(math.pi * share))
    return rate.min + left * (rate.max - rate.min)


def warmup_steps(rate: RateConfig, last_step: int) -> float:
    """Return the length of the warm-up [steps]. Raises UsageError if it is longer than the decay."""
    try:
        return rate.warmup(last_step)
    except ValueError as error:
        raise UsageError(str(error)) from None
