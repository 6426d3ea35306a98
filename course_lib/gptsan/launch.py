"""Trains a GPTSAN with DeepSpeed's launcher and exports the trained model as a Hugging Face folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib import config
from course_lib.errors import CourseError
from course_lib.files import atomic_folder, require_other
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.task import Gptsan
from course_lib.training import checkpoint
from course_lib.training.launch import Run, absolute
from course_lib.training.launch import train as run_task
from course_lib.training.monitor import ALOUD, Say
from course_lib.training.task import CONFIG

MODEL = "model"  # folder of the exported model inside the folder of a run


@dataclass(frozen=True)
class Trained:
    """Report of an export."""

    folder: Path
    step: int
    trained: int  # number of trained tensors
    frozen: int  # number of frozen tensors

    def summary(self) -> str:
        """The report in one line."""
        return (
            f"step {self.step:,}, {self.trained} tensors trained, "
            f"{self.frozen} frozen (bit for bit as they were) → {self.folder}"
        )


def train(settings: GptsanConfig, resume: bool = False, say: Say = ALOUD) -> Run:
    """Trains a GPTSAN; arguments and result are those of course_lib.training.launch.train."""
    return run_task(Gptsan(absolute(settings)), resume, say)


def export(run: Path, target: Path) -> Trained:
    """Exports the model in a run's latest complete checkpoint to `target`, which appears complete or not at all.

    Frozen tensors are copied bit for bit from model.checkpoint. Trained tensors are the optimizer's fp32 weights,
    converted to the dtype that they have in model.checkpoint. For a new model that is the dtype it was trained in.

    Args:
        run: folder of the run.
        target: the folder to write.

    Raises:
        CourseError: the run has no complete checkpoint.
    """
    from course_lib.checkpoints import deepspeed_shards, weight_files
    from course_lib.checkpoints.torch_dtypes import TORCH
    from course_lib.gptsan.extra_stage import read_config, read_weights, tensors_of
    from course_lib.gptsan.freeze import frozen_names

    checkpoints = checkpoint.whole_checkpoints(run)
    if not checkpoints:
        raise CourseError(f"{run}: the run has no whole checkpoint yet")
    task = Gptsan(config.load(GptsanConfig, run / CONFIG))
    source = task.settings.model.checkpoint
    shape = read_config(source) if source else task.shape()
    weights = deepspeed_shards.read_weights(checkpoints[0])
    before = read_weights(source) if source else {}
    held, parameters = tensors_of(shape)
    # At ZeRO stage 1 the optimizer has no copy of the frozen weights; the module's state does.
    stored = {} if held.keys() <= weights.tensors.keys() or source else deepspeed_shards.read_module(checkpoints[0])
    trained = set(parameters) - frozen_names(task.settings.model.ignore, task.settings.spout.mode, shape, parameters)

    def tensors() -> Iterator[tuple[str, Any]]:
        for name in held:
            if name in trained or not source:
                value = (weights.tensors if name in weights.tensors else stored)[name].contiguous()
                yield name, value.to(before[name].dtype if source else TORCH[weights.trained_as])
            else:
                yield name, before[name].contiguous()

    own = target.absolute() == run.absolute() / MODEL
    if not own:
        require_other(run, target)
    with atomic_folder(target, ours=own) as folder:
        weight_files.write(tensors(), folder, weight_files.SHARD)
        shape.save_pretrained(folder)
        task.copy_tokenizer(folder)
    return Trained(target, checkpoint.step_of(checkpoints[0]), len(trained), len(parameters) - len(trained))
