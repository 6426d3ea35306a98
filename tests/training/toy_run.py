"""A kind of run as a notebook's cell may define it: weights whose mean learns numbers; a step takes a millisecond."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from course_lib.checkpoints.training_state import read_weights
from course_lib.prefix.samples import Samples
from course_lib.settings import config
from course_lib.settings.config import STRICT
from course_lib.training import checkpoint
from course_lib.training.run import ENDLESS, Run, RunData
from course_lib.training.settings import ResolvedBatch, RunConfig
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from typing_extensions import override


@dataclass(frozen=True, config=STRICT)
class NumbersConfig(RunConfig):
    """Settings of the run."""

    @override
    def identity(self) -> dict[str, Any]:
        return self.chosen(engine=["seed"], precision=["dtype"], optimizer=["lr", "weight_decay", "grad_clip"])


class Numbers(Run):
    """A run whose samples are lists of numbers; a list may be empty."""

    settings_class = NumbersConfig
    settings: NumbersConfig

    def __init__(
        self,
        settings: NumbersConfig,
        samples: Sequence[Sequence[float]] = ((1, 2), (4,), (), (8, 3, 5)),
        held_out: Sequence[Sequence[float]] = (),
        before_loss: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__(settings)
        self.samples, self.held_out = samples, held_out
        self.before_loss = before_loss
        self.micro_batches = 0

    def title(self) -> str:
        return "numbers"

    def identity(self) -> dict[str, Any]:
        return {"settings": self.settings.identity(), "inputs": [list(sample) for sample in self.samples]}

    def copy_tokenizer(self, folder: Path) -> None:
        pass

    def check(self) -> None:
        pass

    def steps(self, batch: ResolvedBatch) -> int | None:
        return self.settings.engine.max_steps

    def data(self, number: int | None) -> RunData:
        rows, held_out = self.samples, self.held_out
        return RunData(
            train=Samples(rows, number or ENDLESS, self.settings.engine.seed, shuffle=False),
            validation=Samples(held_out, len(held_out), 0, shuffle=False) if held_out else None,
            test=None,
            tokens_per_sample=1.0,
            samples_per_epoch=len(rows),
            flops_per_token=1.0,
            collate=collate,
        )

    def model(self) -> Any:
        model = nn.Linear(1, 2000, bias=False)
        nn.init.zeros_(model.weight)
        return model

    def loss(self, model: Any, batch: Any) -> Tensor:
        """The mean squared error; 0 without numbers."""
        self.micro_batches += 1
        self.before_loss(self.micro_batches)
        learned = model(torch.ones(1)).mean()
        total: Tensor = ((learned - batch["numbers"]) ** 2).sum()
        return total / self.targets(batch).clamp(min=1)

    def targets(self, batch: Any) -> Any:
        return torch.tensor(len(batch["numbers"]))

    def export(self, target: Path, step: int | None = None) -> float:
        """What has been learned."""
        weights = read_weights(checkpoint.to_export(self.settings.engine.output_dir, step))
        return float(weights.tensors["weight"].contiguous().mean())


def collate(samples: Sequence[Sequence[float]]) -> dict[str, Tensor]:
    return {"numbers": torch.tensor([number for sample in samples for number in sample], dtype=torch.float32)}


def settings(folder: Path, *overrides: str) -> NumbersConfig:
    values = {
        "batch": {"global_size": 4, "micro_size": 1},
        "optimizer": {"weight_decay": 0.0, "grad_clip": 0.0, "lr": {"max": 0.5, "min": 0.1, "warmup_steps": 0}},
        "precision": {"dtype": "fp32"},
        "engine": {"output_dir": str(folder), "max_steps": 6, "save_steps": 3, "logging_freq": 1, "tracking": []},
        "launch": {"ranks": 1, "device": "cpu"},
    }
    return config.build(NumbersConfig, values, overrides)
