"""A kind of training run: its settings, identity, data, model, loss and export. loop.py trains it.

There is one subclass for each kind: `pretrain/gpt2.py`, `gptsan/run.py` and `prefix/run.py`. CONTRIBUTING.md has an
example of another one.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from course_lib.training.settings import ResolvedBatch, absolute

# the number of samples in a data set without end
ENDLESS = sys.maxsize


@dataclass(frozen=True)
class RunData:
    """The samples of a run, and the constants that convert them into epochs, tokens and FLOPs."""

    train: Any  # a dataset, in training order
    validation: Any | None
    test: Any | None
    tokens_per_sample: float  # the mean, without padding
    samples_per_epoch: float
    flops_per_token: float
    collate: Callable[[list[Any]], dict[str, Any]]  # samples → tensors [micro-batch, …] by name


class Run(ABC):
    """A model, its data and its loss, as `train(run)` needs them."""

    settings_class: ClassVar[type]
    # The words of the `course` command that trains this kind, which several ranks run; "": it trains on one rank only.
    command: ClassVar[str] = ""
    settings: Any  # a RunConfig with the keys of this kind; all paths are absolute

    def __init__(self, settings: Any) -> None:
        self.settings = absolute(settings)

    @abstractmethod
    def title(self) -> str:
        """Return what is trained in a few words, for the progress bar, such as "GPT-2, 8 layers"."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return everything that fixes the weights after each step, and nothing else, as JSON values.

        "settings" is `settings.identity()`, all other keys are facts about the inputs. A run resumes only if its folder
        has the same identity. Length, logging, launch, micro-batch and recomputation are no part of it: a resume may
        change them. A product's identity is that of its run, with batch, length and code (workspace/products.py).
        """

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
    def steps(self, batch: ResolvedBatch) -> int | None:
        """Return the number of optimizer steps in the whole run, or None if its length is a time."""

    @abstractmethod
    def data(self, number: int | None) -> RunData:
        """Return the training set with the first `number` samples of the run, and the held-out sets.

        None: samples without end, an epoch after another.
        """

    @abstractmethod
    def model(self) -> Any:
        """Return the model to train. Under ZeRO stage 3, its weights are sharded while it is built."""

    @abstractmethod
    def loss(self, model: Any, batch: Any) -> Any:
        """Return the mean loss over the targets of a micro-batch [nats per token], a tensor with one element.

        Without targets, the result may be any finite number.
        """

    @abstractmethod
    def targets(self, batch: Any) -> Any:
        """Return the number of targets, the tokens that `loss` is the mean over, a tensor with one element."""

    @abstractmethod
    def export(self, target: Path, step: int | None = None) -> Any:
        """Export what the run's folder holds to `target`, from the checkpoint of a step or the latest one."""

    def prepare(self, model: Any, device: Any) -> None:
        """Prepare the model for a training from the start, before the optimizer takes its weights."""
        return

    def reader_workers(self) -> int:
        """Return the number of processes that read samples for one rank."""
        return 0

    @property
    def saves_frozen(self) -> bool:
        """Whether checkpoints hold the frozen weights; if not, the folder of the base model does."""
        return True
