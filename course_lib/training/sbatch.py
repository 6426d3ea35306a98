"""The Slurm script that `course pretrain --print-sbatch` writes."""

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from course_lib.errors import UsageError
from course_lib.settings import profiles
from course_lib.training.interruptions import STOP
from course_lib.training.settings import LaunchConfig

# Slurm may send the signal up to 60 s early; the current step and the checkpoint get 120 s (watch.PATIENCE).
LEAD = 300
# exit code of a run that the stop request has stopped, with a checkpoint
STOPPED = 128 + STOP
# The shell gets the signal (`B:`). It passes it on to the command, which also ends the first `wait`.
SCRIPT = f"""\
#!/bin/bash
{{options}}
#SBATCH --requeue

# srun does not take the number of cores from the lines above (since Slurm 22.05).
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
{{command}} &
trap "kill -USR1 $!" USR1
wait $!
wait $!
code=$?
# {STOPPED}: stopped by {STOP.name} before the time limit, with a checkpoint
if [ "$code" -eq {STOPPED} ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
"""


def script(
    launch: LaunchConfig, words: Sequence[str], file: Path, overrides: Sequence[str] | None, output: Path | None
) -> str:
    """Return a script for `sbatch` that runs a training command until its last step, in several jobs if necessary."""
    slurm = launch.slurm
    if launch.ranks is None:
        raise UsageError("launch.ranks: not set; --print-sbatch needs the number of ranks (GPUs) per node")
    command = [sys.executable, "-m", "course_lib.cli", *words, "-c", str(profiles.find_settings_file(file).absolute())]
    command += [word for override in overrides or () for word in ("--set", override)]
    command += ["-o", str(output)] if output else []
    options = {
        "job-name": "-".join((*words, file.stem)),
        "partition": slurm.partition,
        "account": slurm.account,
        "nodes": slurm.nodes,
        "ntasks-per-node": launch.ranks,
        "gpus-per-node": "" if launch.device == "cpu" else launch.ranks,
        "cpus-per-task": slurm.cpus_per_rank,
        "mem": slurm.memory,
        "time": slurm.time,
        "signal": f"B:USR1@{LEAD}",
        "chdir": Path.cwd(),
        "output": "%x-%j.log",
        "open-mode": "append",
    }
    lines = [f"#SBATCH --{name}={_quoted(name, str(value))}" for name, value in options.items() if value != ""]
    return SCRIPT.format(options="\n".join(lines), command=shlex.join([*command, "--resume"]))


def _quoted(name: str, value: str) -> str:
    """Return the value of an option as sbatch reads it from a script: slurm, src/sbatch/opt.c, _get_argument.

    White space ends a value and # begins a comment, unless they are quoted. A backslash escapes, also between quotes.
    """
    if "\n" in value:
        raise UsageError(f"--{name}: {value!r} has a line break, which sbatch cannot read; allowed: a path without")
    if not re.search(r"""[\s#"'\\]""", value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
