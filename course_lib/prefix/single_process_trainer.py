"""Prefix tuning in plain PyTorch, in this process and without DeepSpeed; the training is that of a run (task.py)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import nan

import torch
from torch import Tensor

from course_lib.checkpoints.compute import device, one_thread
from course_lib.checkpoints.quiet import quiet
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.model import PrefixModel, build, warm_start
from course_lib.prefix.run import PrefixRun
from course_lib.prefix.samples import Samples, TokenRow, collate, loss
from course_lib.training import quick


@dataclass(frozen=True)
class Case:
    """Measurements from one training run."""

    losses: list[float]  # training loss at each step [nats per token]
    held_out: float  # held-out loss [nats per token]; NaN without held-out samples
    model: PrefixModel


def train(settings: PrefixConfig) -> Case:
    """Train a model on one device, the GPU if launch.device allows it, and measure it."""
    task = PrefixRun(settings)
    task.check()
    batch = settings.batch.resolve(1)
    steps = task.steps(batch)
    assert steps
    rows, held_out = task.rows()
    samples = Samples(rows, steps * batch.total, settings.engine.seed)
    micro_batches = [[samples[at + n] for n in range(batch.micro)] for at in range(0, len(samples), batch.micro)]
    batches = [micro_batches[at : at + batch.accumulation] for at in range(0, len(micro_batches), batch.accumulation)]
    model = build(settings).to(device(settings.launch.device))
    loss_of = partial(_loss, model)
    # Suppress the transformers warning that the ids include the padding id.
    with one_thread(sum(parameter.numel() for parameter in model.parameters())), quiet():
        warm_start(model, settings.model)
        losses = quick.train(model, loss_of, batches, settings.optimizer, steps, _targets)
        evaluated = held_out[: settings.engine.eval_iters * batch.total]
        return Case(losses, evaluate(model, evaluated, batch.micro), model)


def _loss(model: PrefixModel, rows: Sequence[TokenRow]) -> Tensor:
    batch = {name: tensor.to(model.base.device) for name, tensor in collate(rows).items()}
    return loss(model(batch["input_ids"]), batch["labels"])


def _targets(rows: Sequence[TokenRow]) -> int:
    return sum(row.targets for row in rows)


@torch.no_grad()
def evaluate(model: PrefixModel, rows: Sequence[TokenRow], micro: int) -> float:
    """Return the mean loss over all targets of the rows [nats per token], or NaN if `rows` is empty."""
    model.eval()
    batches = [rows[at : at + micro] for at in range(0, len(rows), micro)]
    return sum(_loss(model, batch).item() * _targets(batch) for batch in batches) / _targets(rows) if rows else nan
