"""What a run trains. The rest of a run is the same for every model: folder, launcher, ranks, log, checkpoints (launch.py says where)."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from course_lib import config
from course_lib.training.settings import (
    ResolvedBatch,
)

if TYPE_CHECKING:
    from course_lib.training.trainer import RunTrainer

CONFIG = "config.yaml"  # a run's settings, in its folder


class Task(ABC):
    """A model and its data. The launcher makes one from the settings, and each rank makes the same one from the run's folder."""

    settings_class: ClassVar[type]
    settings: Any  # RunConfig, and the sections of this task; all paths absolute

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @classmethod
    def read(cls, run: Path) -> "Task":
        """The task of a run's folder."""
        return cls(config.load(cls.settings_class, run / CONFIG))

    @classmethod
    def name(cls) -> str:
        """How worker.py finds the class."""
        return f"{cls.__module__}:{cls.__qualname__}"

    @abstractmethod
    def copy_tokenizer(self, folder: Path) -> None:
        """Copies the tokenizer's files into a folder of the run."""

    @abstractmethod
    def check(self) -> None:
        """Raises UsageError or CourseError for what this machine has no part for, and for settings and data that do not go together."""

    @abstractmethod
    def steps(self, batch: ResolvedBatch) -> int:
        """Optimizer steps of the whole run."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """What the run's data.json says of its inputs; a resumed run has to find the same."""

    @abstractmethod
    def resume_invariants(self, settings: Any) -> dict[str, Any]:
        """What a resumed run may not change, by dotted key."""

    @abstractmethod
    def train_length(self, settings: Any) -> tuple[object, ...]:
        """The settings that say how long to train."""

    @abstractmethod
    def trainer(self, batch: ResolvedBatch) -> "RunTrainer":
        """Called in each rank: the model, the data and the loss."""

    def memory_help(self, ranks: int) -> str:
        """What the planner expects, and which settings would need less."""
        from course_lib.training import planner

        plan = planner.plan(self.settings, ranks)
        changes = planner.smaller(self.settings, ranks)
        knobs = "; ".join(f"{change} → {total / 1e9:.1f} GB" for change, total in changes)
        return f"the planner expects {plan.total / 1e9:.1f} GB a rank; what would help: {knobs or 'a smaller model'}"
