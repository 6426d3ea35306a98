"""The learning-rate schedule as a function of the step. trainer.py creates the torch scheduler that applies it."""

import math

from course_lib.errors import UsageError
from course_lib.training.settings import RateConfig


def learning_rate(rate: RateConfig, step: int, last_step: int) -> float:
    """Return the learning rate for an optimizer step, counted from 1.

    The rate rises linearly to `max`, falls along half a cosine or a straight line to `min` at decay_steps (unset:
    `last_step`), and then stays at `min`, as CosineAnnealingWithWarmupDecay in FleetX (`examples/gpt/single`).
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
    """Return the length of the warm-up [steps]. Raises UsageError if it is longer than the decay."""
    try:
        return rate.warmup(last_step)
    except ValueError as error:
        raise UsageError(str(error)) from None
