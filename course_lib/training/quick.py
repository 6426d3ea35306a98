"""The training loop of trainer.py by itself: in this process, on one device, without DeepSpeed and checkpoints."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.training.lr_schedule import learning_rate
from course_lib.training.parameter_groups import parameter_groups
from course_lib.training.settings import OptimizerConfig


def train(
    model: nn.Module,
    loss: Callable[[Any], Tensor],
    batches: Iterable[Sequence[Any]],
    settings: OptimizerConfig,
    steps: int,
    targets: Callable[[Any], int] = lambda _: 1,
) -> list[float]:
    """Train with AdamW and return each step's loss; `loss` is that of a micro-batch, `batches` has those of a step.

    A step's loss is the mean over the targets of its micro-batches. `targets` returns the number of a micro-batch,
    whose mean `loss` is; by default, all micro-batches have the same number.
    """
    betas = settings.beta1, settings.beta2
    optimizer = torch.optim.AdamW(parameter_groups(model, settings.weight_decay), betas=betas, eps=settings.epsilon)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    losses = []
    model.train()
    for step, micro_batches in zip(range(1, steps + 1), batches, strict=False):
        losses.append(0.0)
        total = sum(map(targets, micro_batches))
        for micro_batch in micro_batches:
            part = loss(micro_batch) * (targets(micro_batch) / total)
            part.backward()  # type: ignore[no-untyped-call]
            losses[-1] += part.item()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings.lr, step, steps)
        nn.utils.clip_grad_norm_(trained, settings.grad_clip or float("inf"))
        optimizer.step()
        optimizer.zero_grad()
    return losses
