"""The interface between a run and what it trains: a model, its data and its settings.

Everything else is the same for all models: folder, launcher, ranks, log, checkpoints (see launch.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from course_lib import config
from course_lib.training.settings import ResolvedBatch, absolute

if TYPE_CHECKING:
    from course_lib.training.trainer import RunTrainer

# the file with the settings of a run, in its folder
CONFIG = "config.yaml"


class Task(ABC):
    """A model and its data.

    The launcher makes a task from the settings. Each rank makes the same task from the run's folder.
    """

    settings_class: ClassVar[type]
    settings: Any  # a RunConfig with the sections of this task; all paths are absolute

    def __init__(self, settings: Any) -> None:
        self.settings = absolute(settings)

    @classmethod
    def read(cls, run: Path) -> "Task":
        """The task of the run in a folder."""
        return cls(config.load(cls.settings_class, run / CONFIG))

    @classmethod
    def name(cls) -> str:
        """The name of the class, by which worker.py imports it: `module:class`."""
        return f"{cls.__module__}:{cls.__qualname__}"

    @abstractmethod
    def copy_tokenizer(self, folder: Path) -> None:
        """Copies the tokenizer's files into `folder`, a folder of the run."""

    @abstractmethod
    def check(self) -> None:
        """Checks the settings before the run starts.

        Raises UsageError or CourseError if this machine lacks software or hardware for them, or if settings and data
        contradict each other.
        """

    def summary(self) -> str:
        """What is known about the data once `check` has passed, in one line; "": nothing to tell."""
        return ""

    @abstractmethod
    def steps(self, batch: ResolvedBatch) -> int:
        """The number of optimizer steps of the whole run."""

    @abstractmethod
    def files(self) -> Iterable[Path]:
        """The files whose content, together with the settings, determines what the run learns."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """A description of the run's inputs for data.json. A resumed run must have the same fingerprint."""

    @abstractmethod
    def resume_invariants(self, settings: Any) -> dict[str, Any]:
        """The settings that must not change when a run is resumed, by dotted key."""

    @abstractmethod
    def train_length(self, settings: Any) -> tuple[object, ...]:
        """The settings that determine the training length."""

    @abstractmethod
    def trainer(self, batch: ResolvedBatch, steps: int) -> "RunTrainer":
        """The trainer of one rank, with the model, the data and the loss, for a run of `steps` optimizer steps."""

    def memory_help(self, ranks: int) -> str:
        """The memory that the planner expects, and the settings that need less, as text for an error message."""
        from course_lib.training import planner

        plan = planner.plan(self.settings, ranks)
        changes = planner.smaller(self.settings, ranks)
        options = "; ".join(f"{change} → {total / 1e9:.1f} GB" for change, total in changes)
        return f"the planner expects {plan.total / 1e9:.1f} GB per rank; to save memory: {options or 'a smaller model'}"
