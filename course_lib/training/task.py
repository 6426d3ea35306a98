"""What a run trains: a model, its data, its loss and its settings. There is one class for each kind of run."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from course_lib.settings import config
from course_lib.training.settings import ResolvedBatch, absolute

# the settings file in the run folder
CONFIG = "config.yaml"


@dataclass(frozen=True)
class RunSamples:
    """The samples for a run, and the constants that convert them into epochs, tokens and FLOPs."""

    train: Any  # a dataset, in training order
    validation: Any | None
    test: Any | None
    tokens_per_sample: float  # the mean, without padding
    samples_per_epoch: float
    flops_per_token: float
    collate: Callable[[list[Any]], dict[str, Any]]


class Task(ABC):
    """A model and its data. The launcher creates a task from the settings, and each rank from the run folder."""

    settings_class: ClassVar[type]
    settings: Any  # a RunConfig with the sections for this task; all paths are absolute

    def __init__(self, settings: Any) -> None:
        self.settings = absolute(settings)

    @classmethod
    def read(cls, run: Path) -> "Task":
        """Return the task for the run in a folder."""
        return cls(config.load(cls.settings_class, run / CONFIG))

    @classmethod
    def name(cls) -> str:
        """Return the class name as `module:class`, which worker.py uses to import it."""
        return f"{cls.__module__}:{cls.__qualname__}"

    @abstractmethod
    def title(self) -> str:
        """Return what is trained in a few words, for the progress bar, such as "GPT-2, 8 layers"."""

    @abstractmethod
    def copy_tokenizer(self, folder: Path) -> None:
        """Copy the tokenizer files into `folder`."""

    @abstractmethod
    def check(self) -> None:
        """Raise CourseError if settings, data and what is installed here do not fit together."""

    def summary(self) -> str:
        """Return one line about the data, known after `check` has passed, or "" if there is nothing to report."""
        return ""

    @abstractmethod
    def steps(self, batch: ResolvedBatch) -> int:
        """Return the number of optimizer steps in the whole run."""

    @abstractmethod
    def files(self) -> Iterable[Path]:
        """Return the files whose content, together with the settings, determines what the run learns."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Return a description of the run inputs for data.json. A resumed run must have the same fingerprint."""

    @abstractmethod
    def resume_invariants(self, settings: Any) -> dict[str, Any]:
        """Return the settings that must not change when a run is resumed, by dotted key."""

    @abstractmethod
    def model(self) -> Any:
        """Return the model to train, in a rank. Under ZeRO stage 3, its weights are sharded while it is built."""

    @abstractmethod
    def samples(self, number: int) -> RunSamples:
        """Return the training set with the first `number` samples of the run, and the held-out sets."""

    @abstractmethod
    def loss(self, model: Any, batch: Any) -> Any:
        """Return the mean loss over the targets of a micro-batch [nats per token], a tensor with one element.

        Without targets, the result may be any finite number.
        """

    @abstractmethod
    def targets(self, batch: Any) -> Any:
        """Return the number of targets, the tokens that `loss` is the mean over, a tensor with one element."""

    def reader_workers(self) -> int:
        """Return the number of processes that read samples for one rank."""
        return 0

    def before_training(self, model: Any, device: Any, resumed: bool) -> None:
        """Prepare the model, before DeepSpeed takes its weights. Does nothing by default."""
        return

    @property
    def saves_frozen(self) -> bool:
        """Whether checkpoints hold the frozen weights; if not, the folder of the base model does."""
        return True
