"""The training of trainer.py in plain PyTorch, in this process: the same samples, loss, schedule and updates, without DeepSpeed.

For many short runs, as in a notebook, and to hold the DeepSpeed run against. One device, nothing is saved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from course_lib import config
from course_lib.checkpoints.quiet import quiet
from course_lib.errors import UsageError
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.model import PrefixModel, build, warm_start
from course_lib.prefix.samples import Row, Samples, collate, loss
from course_lib.prefix.task import PrefixTask
from course_lib.prefix.trainer import decays
from course_lib.training import planner
from course_lib.training.lr_schedule import learning_rate


@dataclass(frozen=True)
class Result:
    """What training came to."""

    losses: list[float]  # of each step [nats]
    held_out: float | None
    model: PrefixModel

    @property
    def trained(self) -> int:
        """Trained parameters."""
        return sum(parameter.numel() for parameter in _trained(self.model))


@dataclass(frozen=True)
class Case:
    """A run of a comparison."""

    losses: list[float]  # of each step [nats]
    held_out: float | None
    trained: int  # parameters
    memory: dict[str, int]  # as planned for one GPU, by part, its context and reserve left out [bytes]


def train(settings: PrefixConfig) -> Result:
    """Trains on one device, the GPU if there is one and launch.device allows it. Raises UsageError and CourseError as a run does, and for fp16."""
    if settings.precision.dtype == "fp16":
        raise UsageError(
            "precision.dtype: fp16 is not allowed here: it needs DeepSpeed's loss scale; allowed: bf16, fp32"
        )
    task = PrefixTask(settings)
    task.check()
    batch = settings.batch.resolve(1)
    steps = task.steps(batch)
    train, held_out = task.rows()
    samples = Samples(train, steps * batch.total, settings.engine.seed)
    gpu = torch.cuda.is_available() and settings.launch.device != "cpu"
    model = build(settings).to("cuda" if gpu else "cpu")
    with quiet():  # transformers remarks that ids of padding occur
        warm_start(model, settings.model)
    optimizer = _optimizer(model, settings)
    losses = []
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings.optimizer.lr, step, steps)
        losses.append(0.0)
        for at in range((step - 1) * batch.total, step * batch.total, batch.micro):
            part = _loss(model.train(), [samples[at + place] for place in range(batch.micro)]) / batch.accumulation
            part.backward()  # type: ignore[no-untyped-call]
            losses[-1] += part.item()
        if settings.optimizer.grad_clip:
            nn.utils.clip_grad_norm_(_trained(model), settings.optimizer.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
    return Result(losses, _evaluate(model, held_out[: settings.engine.eval_iters * batch.total], batch.micro), model)


def sweep(settings: PrefixConfig, cases: Mapping[str, Sequence[str]]) -> dict[str, Case]:
    """Trains once for each case, a name and its overrides: {"P = 5": ["model.length=5"], "full": ["model.method=full"]}."""
    found = {}
    for name, overrides in cases.items():
        chosen = config.build(PrefixConfig, config.to_dict(settings), overrides)
        result = train(chosen)
        parts = planner.plan(chosen, 1).parts
        del parts["allowance"]
        found[name] = Case(result.losses, result.held_out, result.trained, parts)
    return found


def _optimizer(model: PrefixModel, settings: PrefixConfig) -> torch.optim.Optimizer:
    wanted = settings.optimizer
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for name, p in named if decays(name) == decayed], "weight_decay": wanted.weight_decay * decayed}
        for decayed in (True, False)
    ]
    return torch.optim.AdamW(groups, wanted.lr.max, (wanted.beta1, wanted.beta2), wanted.epsilon)


def _loss(model: PrefixModel, rows: Sequence[Row]) -> Tensor:
    batch = {name: tensor.to(model.base.device) for name, tensor in collate(rows).items()}
    return loss(model(batch["input_ids"]), batch["labels"])


@torch.no_grad()
def _evaluate(model: PrefixModel, rows: Sequence[Row], micro: int) -> float | None:
    """Mean over the rows of the loss of their micro batch [nats]; None without rows."""
    if not rows:
        return None
    model.eval()
    batches = [rows[at : at + micro] for at in range(0, len(rows), micro)]
    return sum(_loss(model, batch).item() * len(batch) for batch in batches) / len(rows)


def _trained(model: PrefixModel) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
