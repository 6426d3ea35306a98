"""Reader for training checkpoints of this and earlier versions, whatever number of ranks and ZeRO stage saved them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.checkpoints import deepspeed_shards, state_files
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.state_files import WEIGHT, TrainingState
from course_lib.language.words import tr_noop


@dataclass(frozen=True)
class Weights:
    """The weights in a checkpoint."""

    tensors: Mapping[str, Any]  # by name; `.contiguous()` returns a tensor
    kind: str  # "fp32 master weights", or the dtype of the training, such as "bf16 weights"
    trained_as: NumberFormat  # dtype used for training


def read(checkpoint: Path, trained: Sequence[str] = ()) -> TrainingState:
    """Return the training state in a checkpoint folder.

    `trained` are the names of the trained parameters in the order of the optimizer's groups, which checkpoints of an
    earlier version without ZeRO do not have. Raises CourseError, which names a file that is missing or damaged.
    """
    if (checkpoint / state_files.FILE).is_file():
        return state_files.read(checkpoint)
    return deepspeed_shards.read_state(checkpoint, trained)


def read_weights(checkpoint: Path) -> Weights:
    """Return the weights in a checkpoint folder: of trained parameters the fp32 ones, where they were saved."""
    state = read(checkpoint)
    tensors = {}
    for name, tensor in state.tensors.items():
        parameter, _, kind = name.rpartition("/")
        if kind == WEIGHT:
            tensors[parameter] = tensor
    for name, first in state.shared.items():
        if first in tensors:
            tensors[name] = tensors[first]
    return Weights(tensors, tr_noop("fp32 master weights") if state.masters else f"{state.dtype} weights", state.dtype)
