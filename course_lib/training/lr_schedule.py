"""The learning rate of a step. No optimizer here: trainer.py hands the factor to torch."""

import math

from course_lib.errors import UsageError
from course_lib.training.settings import RateConfig


def learning_rate(rate: RateConfig, step: int, last_step: int) -> float:
    """The rate of update `step` (from 1): linear warm-up to `max`, half a cosine or a line to `min` at decay_steps, then `min`.

    The cosine is that of FleetX (`examples/gpt/single`, CosineAnnealingWithWarmupDecay), whose first update has step 1.
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
    """Length of the warm-up [steps]. Raises UsageError when it is longer than the decay."""
    try:
        return rate.warmup(last_step)
    except ValueError as error:
        raise UsageError(str(error)) from None
