"""The loss of GPTSAN. Shapes: B samples, T = num_context, V = vocabulary size, N positions with a target."""

import torch.nn.functional as F
from torch import Tensor

from course_lib.gptsan.layouts import NO_TARGET


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy [nats] and the mean of (log Z)² over the positions with a target.

    Both are 0 if no position has a target. `logits` are [B, T, V]; `targets` are [B, T], with NO_TARGET at positions
    without a target.
    """
    learned = targets != NO_TARGET
    # [N, V] and [N]
    chosen, wanted = logits[learned].float(), targets[learned]
    count = max(len(wanted), 1)
    log_z = chosen.logsumexp(-1)
    return F.cross_entropy(chosen, wanted, reduction="sum") / count, log_z.square().sum() / count
