"""Prefix tuning in plain PyTorch, in the current process and without DeepSpeed.

Samples, loss, learning rate schedule and updates are the same as in trainer.py. This module is intended for many short
runs, such as in a notebook, and for tests that compare it with DeepSpeed. It trains on one device and saves nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from time import perf_counter

import torch
from torch import Tensor, nn

from course_lib.checkpoints.compute import device, one_thread, trainings_at_once
from course_lib.checkpoints.quiet import quiet
from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.parallel import ordered_map
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.measure import exact_matches, kept_for_backward, state_bytes
from course_lib.prefix.model import PrefixModel, build, warm_start
from course_lib.prefix.samples import Row, Samples, collate, loss
from course_lib.prefix.task import PrefixTask
from course_lib.pretrain.gpt2_trainer import decays
from course_lib.progress import progress
from course_lib.settings import config
from course_lib.training.lr_schedule import learning_rate
from course_lib.training.parameter_groups import parameter_groups

Build = Callable[[PrefixConfig], PrefixModel]


@dataclass(frozen=True)
class Case:
    """Measurements from one training run."""

    losses: list[float]  # training loss at each step [nats per token]
    held_out: float | None  # held-out loss [nats per token]
    matches: float | None  # share of held-out targets that greedy decoding returns exactly
    trained: int  # number of trained parameters
    states: int  # size of gradients and optimizer states [bytes]
    activations: int  # size of what the forward pass of the first micro-batch keeps for the backward pass [bytes]
    seconds: float  # duration of the training steps


@dataclass(frozen=True)
class Result(Case):
    """Measurements and model from a training run."""

    model: PrefixModel


def train(settings: PrefixConfig, build_model: Build = build) -> Result:
    """Train on one device: the GPU if there is one and launch.device allows it, otherwise the CPU.

    A small model runs on one CPU thread (hardware.one_thread).

    Args:
        settings: settings of the run.
        build_model: function that returns the model to train, before its warm start; all its parameters that require
            gradients are trained.

    Raises:
        UsageError: if the dtype is fp16, as well as the same errors as a DeepSpeed run.
    """
    if settings.precision.dtype == "fp16":
        raise UsageError(
            "precision.dtype: fp16 is not allowed here: it needs DeepSpeed's loss scale; allowed: bf16, fp32"
        )
    task = PrefixTask(settings)
    task.check()
    model = build_model(settings).to(device(settings.launch.device))
    with one_thread(sum(parameter.numel() for parameter in model.parameters())):
        return _measured(settings, task, model)


def _measured(settings: PrefixConfig, task: PrefixTask, model: PrefixModel) -> Result:
    """Train and evaluate a model, see `train`."""
    batch = settings.batch.resolve(1)
    steps = task.steps(batch)
    train, held_out = task.rows()
    samples = Samples(train, steps * batch.total, settings.engine.seed)
    # Suppress the transformers warning that the ids include the padding id.
    with quiet():
        warm_start(model, settings.model)
    chosen = settings.optimizer
    betas = chosen.beta1, chosen.beta2
    groups = parameter_groups(model, decays, chosen.weight_decay)
    optimizer = torch.optim.AdamW(groups, chosen.lr.max, betas, chosen.epsilon)
    losses = []
    _, activations = kept_for_backward(model.train(), lambda: _loss(model, [samples[at] for at in range(batch.micro)]))
    started = perf_counter()
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings.optimizer.lr, step, steps)
        losses.append(0.0)
        for at in range((step - 1) * batch.total, step * batch.total, batch.micro):
            part = _loss(model.train(), [samples[at + offset] for offset in range(batch.micro)]) / batch.accumulation
            part.backward()  # type: ignore[no-untyped-call]
            losses[-1] += part.item()
        if settings.optimizer.grad_clip:
            nn.utils.clip_grad_norm_(_trained(model), settings.optimizer.grad_clip)
        optimizer.step()
        states = state_bytes(optimizer)
        optimizer.zero_grad()
    seconds = perf_counter() - started
    evaluated = held_out[: settings.engine.eval_iters * batch.total]
    held_out_loss, matches = evaluate(model, evaluated, batch.micro), exact_matches(model, held_out)
    trained = sum(parameter.numel() for parameter in _trained(model))
    return Result(losses, held_out_loss, matches, trained, states, activations, seconds, model)


def sweep(
    settings: PrefixConfig, cases: Mapping[str, Sequence[str]], builders: Mapping[str, Build] | None = None
) -> dict[str, Case]:
    """Train once for each case and return the measurements by case name.

    On the CPU, where a small model runs on one thread, the other cores train other cases at the same time. The results
    are the same, apart from `Case.seconds`.

    Args:
        settings: settings shared by all cases.
        cases: overrides for each case, such as {"P = 5": ["model.length=5"], "full": ["model.method=full"]}.
        builders: functions that return the model to train, for cases that train something else than model.method says;
            they must be picklable.
    """
    chosen = [
        (config.build(PrefixConfig, config.to_dict(settings), overrides), (builders or {}).get(name, build))
        for name, overrides in cases.items()
    ]
    workers = trainings_at_once(settings.sizes().parameters, settings.launch.device)
    results = {}
    with progress(len(cases), "run", "training") as bar:
        found = ordered_map(_case, chosen, min(workers, len(cases)))
        for name, case in zip(cases, found, strict=True):
            bar.set_postfix_str(tr(name))
            results[name] = case
            bar.update()
    return results


def _case(chosen: tuple[PrefixConfig, Build]) -> Case:
    """Train once and return the measurements without the model."""
    result = train(*chosen)
    return Case(**{each.name: getattr(result, each.name) for each in fields(Case)})


def _loss(model: PrefixModel, rows: Sequence[Row]) -> Tensor:
    batch = {name: tensor.to(model.base.device) for name, tensor in collate(rows).items()}
    return loss(model(batch["input_ids"]), batch["labels"])


@torch.no_grad()
def evaluate(model: PrefixModel, rows: Sequence[Row], micro: int) -> float | None:
    """Return the mean micro-batch loss [nats per token], weighted by micro-batch size, or None if `rows` is empty."""
    if not rows:
        return None
    model.eval()
    batches = [rows[at : at + micro] for at in range(0, len(rows), micro)]
    return sum(_loss(model, batch).item() * len(batch) for batch in batches) / len(rows)


def _trained(model: PrefixModel) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
