"""A run trained with PyTorch alone, in a few lines: no engine, folder, log or checkpoint."""

from typing import Any

import torch
from course_lib.training.engines import adamw
from course_lib.training.lr_schedule import learning_rate
from course_lib.training.muon import muon
from course_lib.training.process_state import seed_all
from course_lib.training.run import Run


def train(run: Run, steps: int) -> tuple[list[float], Any]:
    """Train the first steps of a run in fp32 on the CPU; return the loss of each, and the model."""
    settings, batch = run.settings, run.settings.batch.resolve(1)
    data, length = run.data(steps * batch.total), run.steps(batch)
    assert length
    seed_all(settings.engine.seed)
    model = run.model()
    run.prepare(model, torch.device("cpu"))
    wanted = settings.optimizer
    optimizer = muon(model, wanted, torch.float32) if wanted.name == "muon" else adamw(model, wanted)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.train()
    seed_all(settings.engine.seed)
    losses = []
    for step in range(steps):
        samples = [data.train[step * batch.total + number] for number in range(batch.total)]
        parts = [data.collate(samples[at : at + batch.micro]) for at in range(0, batch.total, batch.micro)]
        sums = [run.loss(model, part) * run.targets(part) for part in parts]
        loss = sum(sums) / sum(run.targets(part) for part in parts)
        # Experts that no token was sent to have a gradient, too.
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, wanted.grad_clip or float("inf"))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(wanted.lr, step + 1, length) * group.get("relative_lr", 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, model.eval()


@torch.no_grad()
def held_out(run: Run, model: Any, count: int) -> float:
    """Return the loss of the first held-out samples of a run, in its micro-batches [nats per token]."""
    batch = run.settings.batch.resolve(1)
    data = run.data(batch.total)
    samples: Any = data.validation
    rows = [samples[at] for at in range(min(count, len(samples)))]
    parts = [data.collate(rows[at : at + batch.micro]) for at in range(0, len(rows), batch.micro)]
    total = sum(float(run.loss(model, part) * run.targets(part)) for part in parts)
    return total / sum(int(run.targets(part)) for part in parts)
