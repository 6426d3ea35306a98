"""The script for one rank that trains runs one after the other: `train_runs.py NEW|RESUME KIND FOLDER [KIND FOLDER …]`.

It does for each run what the `course` command does, but imports PyTorch and DeepSpeed only once for all runs.
"""

import os
import sys
from pathlib import Path

from course_lib.gptsan.run import GPTSanRun
from course_lib.prefix.run import PrefixRun
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training.loop import train
from course_lib.training.run import Run

KINDS: dict[str, type[Run]] = {kind.command: kind for kind in (Gpt2, GPTSanRun, PrefixRun)}


def main(resume: bool, commands: list[str], files: list[Path]) -> None:
    ports = iter(os.environ["GROUP_PORTS"].split())
    for command, file in zip(commands, files, strict=True):
        kind = KINDS[command]
        os.environ["MASTER_PORT"] = next(ports)
        train(kind(config.load(kind.settings_class, file)), resume, lambda _: None)


if __name__ == "__main__":
    main(sys.argv[1] == "RESUME", sys.argv[2::2], list(map(Path, sys.argv[3::2])))
    sys.stdout.flush()
    os._exit(0)  # threads of the backends may abort an ordinary end
