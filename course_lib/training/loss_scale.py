"""The loss scale of fp16, which keeps small gradients from becoming 0."""

from course_lib.errors import CourseError
from course_lib.training.settings import PrecisionConfig


class LossScale:
    """A scale that halves when gradients overflow and doubles after a while without: DeepSpeed's DynamicLossScaler.

    (deepspeed/runtime/fp16/loss_scaler.py. PyTorch's GradScaler tolerates no overflow and has no smallest scale.)
    """

    def __init__(self, wanted: PrecisionConfig) -> None:
        self.wanted = wanted
        self.value = wanted.loss_scale or 2.0**wanted.initial_scale_power
        self.skipped = 0  # steps
        self.tolerated = wanted.hysteresis - 1  # overflows before the scale halves
        self.good_steps = 0  # since the last overflow

    def update(self, overflows: bool) -> None:
        """Take note of a step, which was skipped if its gradients overflowed.

        Raises CourseError if they overflow at the smallest scale.
        """
        before = self.good_steps
        self.skipped += overflows
        self.good_steps = 0 if overflows else before + 1
        # a fixed scale
        if self.wanted.loss_scale:
            return
        if overflows and self.tolerated:
            self.tolerated -= 1
        elif overflows:
            smallest = self.wanted.min_loss_scale
            if self.value == smallest:
                raise CourseError(
                    f"gradients overflow at the smallest loss scale, {smallest:g} (precision.min_loss_scale): lower "
                    "optimizer.lr.max, or train in bf16 instead of fp16"
                )
            self.value = max(self.value / 2, smallest)
        # DeepSpeed counts the good steps before this one.
        elif before and before % self.wanted.loss_scale_window == 0:
            self.value *= 2
            self.tolerated = self.wanted.hysteresis - 1
