"""The script for one rank that trains runs one after the other: `train_runs.py NEW|RESUME TASK FOLDER [TASK FOLDER …]`.

It does for each run what worker.py does, but imports PyTorch and DeepSpeed only once for all runs.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""

from accelerate.state import AcceleratorState, GradientState
from course_lib.training import checkpoint
from course_lib.training.task import Task
from course_lib.training.trainer import RunTrainer


def main(resume: bool, names: list[str], folders: list[Path]) -> None:
    for name, folder in zip(names, folders, strict=True):
        module, _, task = name.partition(":")
        loaded: Task = getattr(import_module(module), task).read(folder)
        batch = loaded.settings.batch.resolve(int(os.environ["WORLD_SIZE"]))
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
        latest = checkpoint.whole_checkpoints(folder)[0] if resume else None
        RunTrainer(loaded, batch, loaded.steps(batch)).run_to_end(latest)


if __name__ == "__main__":
    main(sys.argv[1] == "RESUME", sys.argv[2::2], list(map(Path, sys.argv[3::2])))
    sys.stdout.flush()
    os._exit(0)  # as worker.py: threads of the backends may abort an ordinary end
