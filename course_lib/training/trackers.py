"""The trackers beside log.jsonl: TensorBoard and Weights & Biases."""

import os
from types import TracebackType
from typing import Any, Self

from course_lib.training.ranks import Rank
from course_lib.training.settings import RunConfig


class Trackers:
    """Write the log's entries to the trackers in engine.tracking; the first rank alone does."""

    def __init__(self, settings: RunConfig, rank: Rank) -> None:
        self.board: Any = None
        self.wandb: Any = None
        engine = settings.engine
        if rank.first and "tensorboard" in engine.tracking:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(engine.output_dir / "tensorboard"))
        if rank.first and "wandb" in engine.tracking:
            import wandb  # type: ignore[import-not-found]

            mode = os.environ.get("WANDB_MODE", "offline")
            self.wandb = wandb.init(name=engine.output_dir.name, dir=str(engine.output_dir), mode=mode)

    def write(self, entry: dict[str, Any]) -> None:
        """Write the numbers of an entry under names such as train/loss."""
        numbers = {f"{entry['kind']}/{key}": value for key, value in entry.items() if key not in ("kind", "step")}
        if self.board:
            for name, value in numbers.items():
                self.board.add_scalar(name, value, entry["step"])
        if self.wandb:
            self.wandb.log(numbers, step=entry["step"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.board:
            self.board.close()
        if self.wandb:
            self.wandb.finish()
