"""A training loop for a bare function: no run folder, log or checkpoints. Runs are trained by loop.py.

It trains what is no run: the warm start of a prefix.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.training.lr_schedule import learning_rate
from course_lib.training.parameter_groups import parameter_groups
from course_lib.training.settings import OptimizerConfig


def train(
    model: nn.Module,
    loss: Callable[[Any], Tensor],
    batches: Iterable[Any],
    settings: OptimizerConfig,
    steps: int,
) -> list[float]:
    """Train with AdamW, one batch a step, and return each step's loss; `loss` is that of a batch."""
    betas = settings.beta1, settings.beta2
    optimizer = torch.optim.AdamW(parameter_groups(model, settings.weight_decay), betas=betas, eps=settings.epsilon)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    losses = []
    model.train()
    for step, batch in zip(range(1, steps + 1), batches, strict=False):
        step_loss = loss(batch)
        step_loss.backward()  # type: ignore[no-untyped-call]
        losses.append(step_loss.item())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings.lr, step, steps)
        nn.utils.clip_grad_norm_(trained, settings.grad_clip or float("inf"))
        optimizer.step()
        optimizer.zero_grad()
    return losses
