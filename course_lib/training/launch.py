"""Training runs with the DeepSpeed launcher.

monitor.py reads the output of the ranks, run_dir.py prepares the run folder, and worker.py is the script for one rank.
The run folder contains config.yaml, resolved.json, deepspeed.json, data.json, tokenizer/, log.jsonl, output.txt (all
other output from the ranks), checkpoints/ and tensorboard/. After the last step, it also contains model/.
"""

import base64
import json
import os
import shutil
import socket
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError, UsageError
from course_lib.language.words import mark
from course_lib.parallel import default_workers
from course_lib.training import log, node_link, run_dir, stale_locks, worker
from course_lib.training.cpu_extension import COMPILERS
from course_lib.training.monitor import ALOUD, Monitor, Say
from course_lib.training.nodes import HERE, Nodes, find, gpus
from course_lib.training.relay import relay
from course_lib.training.settings import ResolvedBatch, RunConfig
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


@dataclass(frozen=True)
class Start:
    """What all nodes must know to start their ranks."""

    # the step to continue from, 0 for a new run
    step: int
    # the digest of the run folder's files
    digest: str
    # the port for the ranks on the first node
    port: int


def train(task: Task, resume: bool = False, say: Say = ALOUD) -> Run:
    """Train a task with DeepSpeed and return after the last step.

    If each node runs this function (launch.no_ssh, or under `srun`), only the first node writes settings and log.

    Args:
        task: the model and its data.
        resume: continue from the last complete checkpoint in engine.output_dir.
        say: receives each line of the log.

    Raises:
        UsageError: if settings contradict each other.
        CourseError: if the run stops before its last step for any other reason.
    """
    nodes = find(task.settings)
    if resume:
        task = run_dir.with_batch_of_run(task, nodes.ranks, say)
    settings = task.settings
    batch = settings.batch.resolve(nodes.ranks)
    if nodes.follows:
        return _follow(task, nodes, say)
    folder = settings.engine.output_dir
    with node_link.lead(nodes, settings.launch.node_wait, say) as leader:
        steps = _check(task, nodes, batch)
        leader.gather()
        if about := task.summary():
            say(about)
        with run_dir.sole_user(folder):
            start_step = run_dir.prepare(task, run_dir.Resolved(batch, steps), resume, say)
            if start_step < steps:
                environment = environment_of_ranks(settings, nodes)
                monitor = Monitor(task, nodes, steps, say, leader)
                start = Start(start_step, run_dir.digest(folder), _port(settings, nodes))
                leader.tell(**asdict(start))
                with stale_locks.no_stale_locks():
                    monitor.follow(command(task, nodes, start), environment)
    return Run(folder, max(start_step, steps), log.read(folder))


def _follow(task: Task, nodes: Nodes, say: Say) -> Run:
    """Start the ranks of this node when the first node says so, and return when it has ended the run."""
    settings, folder = task.settings, task.settings.engine.output_dir

    def check() -> None:
        _check(task, nodes, settings.batch.resolve(nodes.ranks))

    with node_link.join(nodes, settings.launch.node_wait, say, check) as follower:
        if start := follower.start():
            with stale_locks.no_stale_locks():
                relay(follower, command(task, nodes, Start(**start)), environment_of_ranks(settings, nodes), folder)
    return Run(folder, 0, [], followed=True)


def _check(task: Task, nodes: Nodes, batch: ResolvedBatch) -> int:
    """Check what this node has, and return the number of steps. Raises UsageError or CourseError."""
    _require_parts(task.settings, nodes)
    task.check()
    return task.steps(batch)


def _require_parts(settings: RunConfig, nodes: Nodes) -> None:
    """Raise UsageError or CourseError if this machine does not have the software or hardware that a setting needs."""
    for tracker in settings.engine.tracking:
        if find_spec(tracker) is None:
            raise UsageError(
                f"engine.tracking: {tracker} is not installed; pip install {tracker}, or remove it from engine.tracking"
            )
    on_cpu = not nodes.by_ssh and not gpus(settings)
    if on_cpu and settings.precision.dtype == "fp16":
        raise UsageError("precision.dtype: fp16 is not allowed on CPU ranks; allowed: bf16, fp32")
    if (on_cpu or settings.zero.offload_optimizer) and not any(map(shutil.which, COMPILERS)):
        raise CourseError("no C++ compiler, which DeepSpeed needs for CPU ranks and for offload; apt-get install g++")


def command(task: Task, nodes: Nodes, start: Start) -> list[str]:
    """Return the command line for the DeepSpeed launcher."""
    launch = task.settings.launch
    if nodes.by_ssh:
        words = [sys.executable, "-m", "deepspeed.launcher.runner", "--hostfile", str(launch.hostfile)]
        if launch.master_addr:
            words += ["--master_addr", launch.master_addr]
    elif nodes.rank is None:
        words = one_node(nodes.ranks)
    else:
        words = _launcher({name: _devices(count) for name, count in nodes.slots.items()})
        words += ["--node_rank", str(nodes.rank), "--master_addr", nodes.address[0]]
    words += ["--master_port", str(start.port), "--no_local_rank", worker.__file__]
    return [*words, task.name(), str(task.settings.engine.output_dir), start.digest, str(start.step)]


def _port(settings: RunConfig, nodes: Nodes) -> int:
    """Return the port for the ranks on the first node. With launch.no_ssh, launch.master_port is that of the nodes."""
    return (nodes.rank is None and settings.launch.master_port) or free_port()


def one_node(ranks: int) -> list[str]:
    """Return the start of the command line for ranks on this node only.

    The DeepSpeed runner would build the same command, but takes two seconds to do so. GPUs are numbered from 0, or are
    the first ones in CUDA_VISIBLE_DEVICES.
    """
    return _launcher({HERE: _devices(ranks)})


def _launcher(devices: dict[str, list[int | str]]) -> list[str]:
    """Return the start of the command line for the ranks of one node, given the devices of all nodes."""
    world = base64.urlsafe_b64encode(json.dumps(devices).encode()).decode()
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
    """Return the environment variables for the ranks.

    They select CPU ranks if there is no GPU, and limit threads to the number of cores. For ssh, all of them except
    PYTHONPATH are also written to .deepspeed_env in the run folder, from which DeepSpeed sets them on every node.
    """
    launch = settings.launch
    own = {
        "OMP_NUM_THREADS": str(launch.threads or max(1, default_workers() // max(nodes.slots.values()))),
        "TOKENIZERS_PARALLELISM": "false",
    }
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
    return dict(os.environ) | own | worker.build_environment()
