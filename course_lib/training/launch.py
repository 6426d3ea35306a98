"""Training runs with the DeepSpeed launcher: monitor.py reads the output of the ranks, worker.py is the script for one.

The run folder contains config.yaml, deepspeed.json, data.json, tokenizer/, log.jsonl, output.txt (all other output from
the ranks), checkpoints/, tensorboard/ and, after the last step, model/.
"""

import base64
import json
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError, UsageError
from course_lib.language.words import tr
from course_lib.parallel import default_workers
from course_lib.training import environment, extensions, log, run_dir, worker
from course_lib.training.monitor import PRINT, Monitor, OnMessage
from course_lib.training.nodes import Nodes, find, gpus
from course_lib.training.settings import ResolvedBatch, RunConfig
from course_lib.training.task import Task

# How a node starts its ranks. DeepSpeed's launcher ignores the stop request, which Slurm sends to all processes of a
# step; its ranks do not (interruptions.py). `srun` numbers the nodes.
START = 'trap "" USR1; exec "$0" -u -m deepspeed.launcher.launch --node_rank=${SLURM_NODEID:-0} "$@"'


@dataclass(frozen=True)
class Run:
    """The result of a training run."""

    folder: Path
    steps: int
    log: list[dict[str, Any]]


def train(task: Task, resume: bool = False, on_message: OnMessage = PRINT) -> Run:
    """Train a task with DeepSpeed, or continue its run, to the last step; `on_message` gets each line of the log."""
    nodes = find(task.settings)
    if resume:
        task = run_dir.with_batch_of_run(task, nodes.ranks, on_message)
    settings, folder = task.settings, task.settings.engine.output_dir
    batch = settings.batch.resolve(nodes.ranks)
    steps = _check(task, nodes, batch)
    if about := task.summary():
        on_message(about)
    with run_dir.sole_user(folder):
        start = run_dir.prepare(task, batch, resume, on_message)
        if start < steps:
            extensions.remove_stale_locks()
            monitor = Monitor(task, nodes, steps, on_message)
            monitor.follow(command(task, nodes, start, steps), environment_of_ranks(settings, nodes))
    return Run(folder, max(start, steps), log.read(folder))


def _check(task: Task, nodes: Nodes, batch: ResolvedBatch) -> int:
    """Check what this machine has, and return the number of steps. Raises UsageError or CourseError."""
    settings: RunConfig = task.settings
    on_cpu = not nodes.started_by and not gpus(settings)
    if on_cpu and settings.precision.dtype == "fp16":
        raise UsageError("precision.dtype: fp16 is not allowed on CPU ranks; allowed: bf16, fp32")
    if settings.zero.offload_optimizer and not any(map(shutil.which, extensions.COMPILERS)):
        raise CourseError(tr("no C++ compiler, which DeepSpeed needs for offload; apt-get install g++"))
    task.check()
    return task.steps(batch)


def command(task: Task, nodes: Nodes, start: int, steps: int) -> list[str]:
    """Return the command line that starts the ranks, which continue from the step `start`, 0 for a new run."""
    launch, folder = task.settings.launch, task.settings.engine.output_dir
    options = ["--master_port", str(launch.master_port or free_port()), "--no_local_rank"]
    options += ["--master_addr", nodes.address] if nodes.address else []
    rank = [worker.__file__, task.name(), str(folder), str(start), str(steps)]
    if nodes.started_by == "ssh":
        runner = [sys.executable, "-m", "deepspeed.launcher.runner", "--hostfile", str(launch.hostfile)]
        return [*runner, *options, *rank]
    number = len(nodes.slots)
    srun = ["srun", f"--nodes={number}", f"--ntasks={number}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    return [*(srun if nodes.started_by else []), *one_node(nodes.slots), *options, *rank]


def one_node(slots: Mapping[str, int]) -> list[str]:
    """Return the start of the command line for the ranks of one node, given the number of ranks of all nodes."""
    devices = json.dumps({name: _devices(ranks) for name, ranks in slots.items()})
    world = base64.urlsafe_b64encode(devices.encode()).decode()
    return ["sh", "-c", START, sys.executable, "--world_info", world]


def _devices(ranks: int) -> list[int | str]:
    """Return the devices of a node's ranks: the first ones in CUDA_VISIBLE_DEVICES, or from 0."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    # Clusters name GPUs, and parts of GPUs, by identifiers such as GPU-8932f937 or MIG-8932f937.
    named = len(visible) >= ranks and all(each.isdigit() or each.startswith(("GPU-", "MIG-")) for each in visible)
    return [int(each) if each.isdigit() else each for each in visible[:ranks]] if named else list(range(ranks))


def free_port() -> int:
    """Return a TCP port that is currently free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def environment_of_ranks(settings: RunConfig, nodes: Nodes) -> dict[str, str]:
    """Return the environment variables for the ranks; DeepSpeed sets those in .deepspeed_env on every node by ssh."""
    launch = settings.launch
    own = {
        "OMP_NUM_THREADS": str(launch.threads or max(1, default_workers() // max(nodes.slots.values()))),
        "TOKENIZERS_PARALLELISM": "false",
    }
    if not settings.engine.compile:
        # DeepSpeed compiles parts of an optimizer that no run uses, which would import the torch compiler in each rank.
        own["TORCHDYNAMO_DISABLE"] = "1"
    if launch.device == "cpu" or not (nodes.started_by or gpus(settings)):
        # By default, glibc returns the logits memory to the system after each step, and the system zeroes it again.
        own |= {"DS_ACCELERATOR": "cpu", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
        # By default, idle threads spin. If other processes need the cores, a step takes eight times as long.
        own["OMP_WAIT_POLICY"] = "passive"
    if nodes.started_by == "ssh":
        lines = "".join(f"{name}={value}\n" for name, value in own.items())
        (settings.engine.output_dir / ".deepspeed_env").write_text(lines, encoding="utf8")
        # If a node loses its power or network, ssh ends after a minute.
        alive = "-o ServerAliveInterval=15 -o ServerAliveCountMax=4"
        own["PDSH_SSH_ARGS_APPEND"] = f"{os.environ.get('PDSH_SSH_ARGS_APPEND', '')} {alive}"
    code = str(Path(__file__).parents[2])
    own["PYTHONPATH"] = os.pathsep.join(filter(None, [code, os.environ.get("PYTHONPATH")]))
    variables = dict(os.environ)
    environment.remove_settings(variables)
    return variables | own | extensions.build_environment()
