"""Training runs with the DeepSpeed launcher.

monitor.py reads the output of the ranks, and worker.py is the script for one rank. The run folder contains config.yaml,
resolved.json, deepspeed.json, data.json, tokenizer/, log.jsonl, output.txt (all other output from the ranks),
checkpoints/, tensorboard/ and, after the last step, model/.
"""

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError, UsageError
from course_lib.language.words import mark
from course_lib.parallel import default_workers
from course_lib.training import cpu_extension, events, launcher_process, link, log, run_dir, worker
from course_lib.training.monitor import PRINT, Monitor, OnMessage
from course_lib.training.nodes import Nodes, find, gpus
from course_lib.training.settings import RunConfig
from course_lib.training.task import Task

# what a node prints at the end of a run that another node leads
FOLLOWED = mark("done; the first node exports the model")


@dataclass(frozen=True)
class Run:
    """The result of a training run."""

    folder: Path
    steps: int
    log: list[dict[str, Any]]
    # whether this process followed the first node, which has the result
    followed: bool = False


def train(task: Task, resume: bool = False, on_message: OnMessage = PRINT) -> Run:
    """Train a task with DeepSpeed, or continue its run from the last checkpoint, and return after the last step.

    If each node runs this function (launch.no_ssh, or under `srun`), only the first node writes settings and log.
    `on_message` receives each line of the log. Raises CourseError if the run stops before its last step.
    """
    nodes = find(task.settings)
    if resume:
        task = run_dir.with_batch_of_run(task, nodes.ranks, on_message)
    if nodes.rank:
        return _follow(task, nodes)
    settings, folder = task.settings, task.settings.engine.output_dir
    with link.lead(nodes, settings.launch.node_wait, on_message) as others:
        steps = _check(task, nodes)
        if others:
            others.gather(settings.launch.node_wait)
        if about := task.summary():
            on_message(about)
        with run_dir.sole_user(folder):
            resolved = run_dir.Resolved(settings.batch.resolve(nodes.ranks), steps)
            start_step = run_dir.prepare(task, resolved, resume, on_message)
            if start_step < steps:
                # With launch.no_ssh, launch.master_port is that of the `course` processes.
                port = (nodes.rank is None and settings.launch.master_port) or free_port()
                start: dict[str, Any] = {"step": start_step, "digest": run_dir.digest(folder), "port": port}
                environment = environment_of_ranks(settings, nodes)
                monitor = Monitor(task, nodes, steps, on_message, others)
                if others:
                    others.tell(**start)
                cpu_extension.remove_stale_locks()
                monitor.follow(command(task, nodes, **start), environment)
    return Run(folder, max(start_step, steps), log.read(folder))


def _follow(task: Task, nodes: Nodes) -> Run:
    """Run the ranks of this node when the first node says so, send it what they print, and return when it ends the run.

    An interruption of this node interrupts the run: the first node lets all ranks save a checkpoint.
    """
    folder, problem = task.settings.engine.output_dir, None
    try:
        _check(task, nodes)
    except CourseError as error:
        problem = error
    first = link.join(nodes, task.settings.launch.node_wait, problem)
    message = first.hear()
    if "end" in message:
        return Run(folder, 0, [], followed=True)
    cpu_extension.remove_stale_locks()
    with launcher_process.interruptible():
        # A rank reports a run folder that this node does not see.
        start_in = folder if folder.is_dir() else Path("/")
        environment = environment_of_ranks(task.settings, nodes)
        process = launcher_process.start(command(task, nodes, **message), environment, start_in, subprocess.PIPE)
        threading.Thread(target=_send, args=(first, process), daemon=True).start()
        interrupted = False
        try:
            while True:
                try:
                    message = first.hear()
                except BaseException as error:
                    cause = launcher_process.interruption(error)
                    if cause is None or interrupted:
                        raise
                    launcher_process.ignore_stop_request()
                    first.send(events.line("interrupted", cause=cause[0], code=cause[1], node=nodes.rank))
                    interrupted = True
                    continue
                if "end" in message:
                    return Run(folder, 0, [], followed=True)
                launcher_process.end(process)
        finally:
            launcher_process.end(process)


def _send(first: link.Link, process: launcher_process.Launcher) -> None:
    """Send the first node what the ranks of this node print, and how they end."""
    assert process.stdout
    for raw in process.stdout:
        first.send(raw.decode(errors="replace"))
    first.send(events.line("done", code=process.wait()))


def _check(task: Task, nodes: Nodes) -> int:
    """Check what this node has, and return the number of steps. Raises UsageError or CourseError."""
    settings: RunConfig = task.settings
    batch = settings.batch.resolve(nodes.ranks)
    for tracker in settings.engine.tracking:
        if find_spec(tracker) is None:
            raise UsageError(
                f"engine.tracking: {tracker} is not installed; pip install {tracker}, or remove it from engine.tracking"
            )
    on_cpu = not nodes.by_ssh and not gpus(settings)
    if on_cpu and settings.precision.dtype == "fp16":
        raise UsageError("precision.dtype: fp16 is not allowed on CPU ranks; allowed: bf16, fp32")
    if (on_cpu or settings.zero.offload_optimizer) and not any(map(shutil.which, cpu_extension.COMPILERS)):
        raise CourseError("no C++ compiler, which DeepSpeed needs for CPU ranks and for offload; apt-get install g++")
    task.check()
    return task.steps(batch)


def command(task: Task, nodes: Nodes, step: int, digest: str, port: int) -> list[str]:
    """Return the command line for the DeepSpeed launcher.

    `step` is the one to continue from, 0 for a new run; `digest` is that of the run folder's files; `port` is for the
    ranks on the first node.
    """
    launch = task.settings.launch
    if nodes.by_ssh:
        words = [sys.executable, "-m", "deepspeed.launcher.runner", "--hostfile", str(launch.hostfile)]
        if launch.master_addr:
            words += ["--master_addr", launch.master_addr]
    else:
        words = one_node(nodes.slots)
        if nodes.rank is not None:
            words += ["--node_rank", str(nodes.rank), "--master_addr", nodes.address[0]]
    words += ["--master_port", str(port), "--no_local_rank", worker.__file__]
    return [*words, task.name(), str(task.settings.engine.output_dir), digest, str(step)]


def one_node(slots: Mapping[str, int]) -> list[str]:
    """Return the start of the command line for the ranks of one node, given the number of ranks of all nodes."""
    devices = json.dumps({name: _devices(ranks) for name, ranks in slots.items()})
    world = base64.urlsafe_b64encode(devices.encode()).decode()
    return [sys.executable, "-u", "-m", "deepspeed.launcher.launch", "--world_info", world]


def _devices(ranks: int) -> list[int | str]:
    """Return the devices of this node's ranks: the first ones in CUDA_VISIBLE_DEVICES, or from 0."""
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
    if nodes.rank is not None:
        own["TORCH_CPP_LOG_LEVEL"] = "WARNING"
    if not settings.engine.compile:
        # DeepSpeed compiles parts of an optimizer that no run uses, which would import the torch compiler in each rank.
        own["TORCHDYNAMO_DISABLE"] = "1"
    if launch.device == "cpu" or not (nodes.by_ssh or gpus(settings)):
        # By default, glibc returns the logits memory to the system after each step, and the system zeroes it again.
        own |= {"DS_ACCELERATOR": "cpu", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
        # By default, idle threads spin. If other processes need the cores, a step takes eight times as long.
        own["OMP_WAIT_POLICY"] = "passive"
    if nodes.by_ssh:
        lines = "".join(f"{name}={value}\n" for name, value in own.items())
        (settings.engine.output_dir / ".deepspeed_env").write_text(lines, encoding="utf8")
        # If a node loses its power or network, ssh ends after a minute.
        alive = "-o ServerAliveInterval=15 -o ServerAliveCountMax=4"
        own["PDSH_SSH_ARGS_APPEND"] = f"{os.environ.get('PDSH_SSH_ARGS_APPEND', '')} {alive}"
    code = str(Path(__file__).parents[2])
    own["PYTHONPATH"] = os.pathsep.join(filter(None, [code, os.environ.get("PYTHONPATH")]))
    return dict(os.environ) | own | cpu_extension.build_environment()
