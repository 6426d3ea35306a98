"""The learning-rate schedule as a function of the step. The torch scheduler that applies it is made in trainer.py."""

import math

from course_lib.errors import UsageError
from course_lib.training.settings import RateConfig


def learning_rate(rate: RateConfig, step: int, last_step: int) -> float:
    """The learning rate of one optimizer step.

    Linear warm-up to `max`, then half a cosine or a straight line down to `min` at decay_steps, then `min`. The cosine
    is that of FleetX (`examples/gpt/single`, CosineAnnealingWithWarmupDecay), where the first step has number 1.

    Args:
        rate: the schedule's settings.
        step: number of the optimizer step, counted from 1.
        last_step: last step of the run; the value of decay_steps if that is unset.
    """
    decay = rate.decay_steps or last_step
    warmup = warmup_steps(rate, last_step)
    if warmup and step <= warmup:
        return rate.max * step / warmup
    if step >= decay:
        return rate.min
    share = (step - warmup) / (decay - warmup)
    left = 1 - share if rate.decay == "linear" else 0.5 * (1 + math.cos(math.pi * share))
    return rate.min + left * (rate.max - rate.min)


def warmup_steps(rate: RateConfig, last_step: int) -> float:
    """Length of the warm-up [steps]. Raises UsageError if it is longer than the decay."""
    try:
        return rate.warmup(last_step)
    except ValueError as error:
        raise UsageError(str(error)) from None
