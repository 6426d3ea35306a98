"""Starts the ranks of a run: each is a process that runs the same `course` command as the user. watch.py watches them.

Ranks on this machine are children of this process, those on other machines are started by ssh, and in a Slurm job on
several nodes one `srun` starts all.
"""

import os
import shlex
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from course_lib.parallel import default_workers
from course_lib.settings import config
from course_lib.training.interruptions import STARTED
from course_lib.training.nodes import SSH, Nodes, gpus
from course_lib.training.run import Run
from course_lib.training.settings import RunConfig
from course_lib.training.watch import SRUN, Watch

COURSE = (sys.executable, "-u", "-m", "course_lib.cli")
# Beginnings of the names of environment variables that ssh passes on to other nodes, where `ps` shows them.
PASSED_ON = (
    "COURSE_", "GLOO_", "HF_HOME", "HF_HUB_", "LD_", "NCCL_", "PATH", "PYTHON", "TORCH_", "UCX_", "WANDB_MODE",
)  # fmt: skip


def start(run: Run, nodes: Nodes, steps: int | None, resume: bool, on_message: Callable[[str], None]) -> None:
    """Train with several ranks, and return after the last step; `on_message` gets what the first rank prints.

    The run's folder exists, and is one in which the run may train. Raises UsageError or CourseError if a rank fails, or
    if the run is interrupted.
    """
    folder: Path = run.settings.engine.output_dir
    # The ranks of all nodes can read it there.
    settings_file = folder / f".ranks-{os.getpid()}.yaml"
    command = [*COURSE, *run.command.split(), "-c", str(settings_file), *(["--resume"] if resume else [])]
    try:
        settings_file.write_text(config.to_yaml(run.settings), encoding="utf8")
        Watch(run, nodes, steps, on_message).follow(commands_of_ranks(command, run.settings, nodes))
    finally:
        settings_file.unlink(missing_ok=True)


def commands_of_ranks(
    command: list[str], settings: RunConfig, nodes: Nodes
) -> dict[int, tuple[list[str], dict[str, str]]]:
    """Return what this machine starts: rank → command and environment; SRUN stands for all ranks."""
    environment = environment_of_ranks(settings, nodes)
    if nodes.started_by == "srun":
        return {SRUN: (by_srun(nodes, command), environment)}
    commands: dict[int, tuple[list[str], dict[str, str]]] = {}
    for node, ranks in nodes.slots.items():
        for local in range(ranks):
            of_rank = environment | {"RANK": str(len(commands)), "LOCAL_RANK": str(local)}
            words = by_ssh(node, command, of_rank) if nodes.started_by == "ssh" else command
            commands[len(commands)] = words, of_rank
    return commands


def environment_of_ranks(settings: RunConfig, nodes: Nodes) -> dict[str, str]:
    """Return the environment variables that all ranks get, in addition to those of this process."""
    launch = settings.launch
    code = str(Path(__file__).parents[2])
    environment = {
        STARTED: "1",
        "WORLD_SIZE": str(nodes.ranks),
        "MASTER_ADDR": nodes.address,
        "MASTER_PORT": str(launch.master_port or free_port()),
        "OMP_NUM_THREADS": str(launch.threads or max(1, default_workers() // max(nodes.slots.values()))),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join(filter(None, [code, os.environ.get("PYTHONPATH")])),
    }
    if settings.uses_deepspeed(nodes.ranks) and not settings.engine.compile:
        # DeepSpeed compiles parts of an optimizer that no run uses, which would import the torch compiler in each rank.
        environment["TORCHDYNAMO_DISABLE"] = "1"
    if launch.device == "cpu" or not (nodes.started_by or gpus(settings)):
        # By default, idle threads spin. If other processes need the cores, a step takes eight times as long.
        environment["OMP_WAIT_POLICY"] = "passive"
    return environment


def free_port() -> int:
    """Return a TCP port that is currently free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def by_ssh(node: str, command: list[str], environment: dict[str, str]) -> list[str]:
    """Return the command that starts a rank on another node, with environment variables."""
    passed_on = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    assignments = [f"{name}={shlex.quote(value)}" for name, value in (passed_on | environment).items()]
    # The shell stays, and its exit code tells a killed rank from a lost connection.
    script = f"{' '.join(assignments)} {shlex.join(command)}; exit $?"
    return [*SSH, node, f"exec sh -c {shlex.quote(script)}"]


def by_srun(nodes: Nodes, command: list[str]) -> list[str]:
    """Return the command that starts the ranks of all nodes in a Slurm job."""
    number, ranks = len(nodes.slots), nodes.ranks
    options = [f"--nodes={number}", f"--ntasks={ranks}", f"--ntasks-per-node={ranks // number}", "--export=ALL"]
    script = 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec "$0" "$@"'
    return ["srun", *options, "--label", "--kill-on-bad-exit=1", "sh", "-c", script, *command]
