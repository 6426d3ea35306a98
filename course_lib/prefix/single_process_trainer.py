"""Prefix tuning in plain PyTorch, in this process and without DeepSpeed; the training is that of a run (task.py)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from time import perf_counter

import torch
from torch import Tensor

from course_lib.checkpoints.compute import device, one_thread
from course_lib.checkpoints.quiet import quiet
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.measure import exact_matches, kept_for_backward
from course_lib.prefix.model import PrefixModel, build, warm_start
from course_lib.prefix.samples import Samples, TokenRow, collate, loss
from course_lib.prefix.task import PrefixTask
from course_lib.training import quick

Build = Callable[[PrefixConfig], PrefixModel]


@dataclass(frozen=True)
class Case:
    """Measurements from one training run."""

    losses: list[float]  # training loss at each step [nats per token]
    held_out: float  # held-out loss [nats per token]; NaN without held-out samples
    matches: float  # share of held-out targets that greedy decoding returns exactly; NaN without held-out samples
    trained: int  # number of trained parameters
    states: int  # size of the gradients and of AdamW's two moments [bytes]
    activations: int  # size of what the forward pass of the first micro-batch keeps for the backward pass [bytes]
    seconds: float  # duration of the training steps
    model: PrefixModel | None = None  # the trained model; None in a comparison


def train(settings: PrefixConfig, build_model: Build = build) -> Case:
    """Train the model of `build_model` on one device, the GPU if launch.device allows it, and measure it."""
    task = PrefixTask(settings)
    task.check()
    batch = settings.batch.resolve(1)
    steps = task.steps(batch)
    rows, held_out = task.rows()
    samples = Samples(rows, steps * batch.total, settings.engine.seed)
    micro_batches = [[samples[at + n] for n in range(batch.micro)] for at in range(0, len(samples), batch.micro)]
    batches = [micro_batches[at : at + batch.accumulation] for at in range(0, len(micro_batches), batch.accumulation)]
    model = build_model(settings).to(device(settings.launch.device))
    loss_of = partial(_loss, model)
    # Suppress the transformers warning that the ids include the padding id.
    with one_thread(sum(parameter.numel() for parameter in model.parameters())), quiet():
        warm_start(model, settings.model)
        _, activations = kept_for_backward(model.train(), lambda: loss_of(micro_batches[0]))
        started = perf_counter()
        losses = quick.train(model, loss_of, batches, settings.optimizer, steps)
        seconds = perf_counter() - started
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return Case(
            losses,
            evaluate(model, held_out[: settings.engine.eval_iters * batch.total], batch.micro),
            exact_matches(model, held_out),
            trained=sum(parameter.numel() for parameter in trained),
            states=3 * sum(parameter.nbytes for parameter in trained),
            activations=activations,
            seconds=seconds,
            model=model,
        )


def _loss(model: PrefixModel, rows: Sequence[TokenRow]) -> Tensor:
    batch = {name: tensor.to(model.base.device) for name, tensor in collate(rows).items()}
    return loss(model(batch["input_ids"]), batch["labels"])


@torch.no_grad()
def evaluate(model: PrefixModel, rows: Sequence[TokenRow], micro: int) -> float:
    """Return the mean micro-batch loss [nats per token], weighted by micro-batch size, or NaN if `rows` is empty."""
    model.eval()
    batches = [rows[at : at + micro] for at in range(0, len(rows), micro)]
    return sum(_loss(model, batch).item() * len(batch) for batch in batches) / len(rows) if rows else nan
