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
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError, UsageError
from course_lib.parallel import default_workers
from course_lib.training import log, run_dir, stale_locks, worker
from course_lib.training.cpu_extension import COMPILERS
from course_lib.training.monitor import ALOUD, Monitor, Say
from course_lib.training.settings import RunConfig
from course_lib.training.task import Task


@dataclass(frozen=True)
class Run:
    """The result of a training run."""

    folder: Path
    steps: int
    log: list[dict[str, Any]]


def train(task: Task, resume: bool = False, say: Say = ALOUD) -> Run:
    """Train a task with DeepSpeed and return after the last step.

    Args:
        task: the model and its data.
        resume: continue from the last complete checkpoint in engine.output_dir.
        say: receives each line of the log.

    Raises:
        UsageError: if settings contradict each other.
        CourseError: if the run stops before its last step for any other reason.
    """
    settings = task.settings
    ranks = count_ranks(settings)
    batch = settings.batch.resolve(ranks)
    _require_parts(settings)
    task.check()
    if about := task.summary():
        say(about)
    steps = task.steps(batch)
    folder = settings.engine.output_dir
    with run_dir.sole_user(folder):
        start_step = run_dir.prepare(task, run_dir.Resolved(batch, steps), resume, say)
        if start_step < steps:
            environment = _environment(settings, ranks)
            with stale_locks.no_stale_locks():
                Monitor(task, ranks, steps, say).follow(_command(task, ranks, resume), environment)
    return Run(folder, max(start_step, steps), log.read(folder))


def _require_parts(settings: RunConfig) -> None:
    """Raise UsageError or CourseError if this machine does not have the software or hardware that a setting needs."""
    for tracker in settings.engine.tracking:
        if find_spec(tracker) is None:
            raise UsageError(
                f"engine.tracking: {tracker} is not installed; pip install {tracker}, or remove it from engine.tracking"
            )
    on_cpu = not settings.launch.hostfile and not _gpus(settings)
    if on_cpu and settings.precision.dtype == "fp16":
        raise UsageError("precision.dtype: fp16 is not allowed on CPU ranks; allowed: bf16, fp32")
    if (on_cpu or settings.zero.offload_optimizer) and not any(map(shutil.which, COMPILERS)):
        raise CourseError("no C++ compiler, which DeepSpeed needs for CPU ranks and for offload; apt-get install g++")


def count_ranks(settings: RunConfig) -> int:
    """Return the number of data-parallel ranks on all nodes.

    Raises UsageError if launch.ranks exceeds the number of GPUs, or if the hostfile is invalid.
    """
    launch = settings.launch
    if launch.hostfile:
        return sum(_slots(launch.hostfile).values())
    gpus = _gpus(settings)
    if launch.ranks and gpus and launch.ranks > gpus:
        raise UsageError(
            f"launch.ranks: {launch.ranks} is not allowed: this machine has {gpus} GPU{'s' * (gpus > 1)}; "
            "set launch.device=cpu for CPU ranks"
        )
    return launch.ranks or max(gpus, 1)


def _gpus(settings: RunConfig) -> int:
    """Return the number of GPUs on this machine that a run may use."""
    if settings.launch.device == "cpu":
        return 0
    import torch

    return torch.cuda.device_count()


def _slots(hostfile: Path) -> dict[str, int]:
    """Return the number of ranks per node from a DeepSpeed hostfile.

    Raises UsageError if the file is unreadable or names no nodes, or if a line is not `name slots=N`.
    """
    slots = {}
    try:
        lines = hostfile.read_text(encoding="utf8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"launch.hostfile: {hostfile}: not readable: {error}") from None
    for number, text in enumerate(lines, 1):
        words = text.split("#")[0].split()
        if not words:
            continue
        name, _, count = words[-1].partition("=")
        if len(words) != 2 or name != "slots" or not count.isdigit() or not int(count):
            raise UsageError(
                f"launch.hostfile: {hostfile}, line {number}: {text!r} is not allowed: expected `name slots=8`"
            )
        slots[words[0]] = int(count)
    if not slots:
        raise UsageError(f"launch.hostfile: {hostfile}: names no nodes; expected lines `name slots=8`")
    return slots


def _command(task: Task, ranks: int, resume: bool) -> list[str]:
    """Return the command line for the DeepSpeed launcher."""
    launch = task.settings.launch
    if launch.hostfile:
        command = [sys.executable, "-m", "deepspeed.launcher.runner", "--hostfile", str(launch.hostfile)]
        if launch.master_addr:
            command += ["--master_addr", launch.master_addr]
    else:
        command = one_node(ranks)
    command += ["--master_port", str(launch.master_port or free_port()), "--no_local_rank"]
    command += [worker.__file__, task.name(), str(task.settings.engine.output_dir)]
    return [*command, "--resume"] if resume else command


def one_node(ranks: int) -> list[str]:
    """Return the start of the command line for ranks on this node only.

    The DeepSpeed runner would build the same command, but takes two seconds to do so. GPUs are numbered from 0, or are
    the first ones in CUDA_VISIBLE_DEVICES.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    # Clusters name GPUs, and parts of GPUs, by identifiers such as GPU-8932f937 or MIG-8932f937.
    named = len(visible) >= ranks and all(each.isdigit() or each.startswith(("GPU-", "MIG-")) for each in visible)
    first = [int(each) if each.isdigit() else each for each in visible[:ranks]]
    devices = {"localhost": first if named else list(range(ranks))}
    world = base64.urlsafe_b64encode(json.dumps(devices).encode()).decode()
    return [sys.executable, "-u", "-m", "deepspeed.launcher.launch", "--world_info", world]


def free_port() -> int:
    """Return a TCP port that is currently free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _environment(settings: RunConfig, ranks: int) -> dict[str, str]:
    """Return the environment variables for the ranks.

    They select CPU ranks if there is no GPU, limit threads to the number of cores, and put the executables of this
    Python environment first in PATH. With a hostfile, all of them except PATH and PYTHONPATH are also written to
    .deepspeed_env in the run folder, from which DeepSpeed sets them on every node.
    """
    launch = settings.launch
    ranks_per_node = max(_slots(launch.hostfile).values()) if launch.hostfile else ranks
    own = {
        "OMP_NUM_THREADS": str(launch.threads or max(1, default_workers() // ranks_per_node)),
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_EXTENSIONS_DIR": str(stale_locks.build_root()),
    }
    if not settings.engine.compile:
        # DeepSpeed compiles parts of an optimizer that no run uses, which would import the torch compiler in each rank.
        own["TORCHDYNAMO_DISABLE"] = "1"
    if launch.device == "cpu" or not (launch.hostfile or _gpus(settings)):
        # By default, glibc returns the logits memory to the system after each step, and the system zeroes it again.
        own |= {"DS_ACCELERATOR": "cpu", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
        # By default, idle threads spin. If other processes need the cores, a step takes eight times as long.
        own["OMP_WAIT_POLICY"] = "passive"
    if launch.hostfile:
        lines = "".join(f"{name}={value}\n" for name, value in own.items())
        (settings.engine.output_dir / ".deepspeed_env").write_text(lines, encoding="utf8")
    # The ninja from this environment must come first. With another one, DeepSpeed would recompile its extensions.
    paths = {"PATH": Path(sys.executable).parent, "PYTHONPATH": Path(__file__).parents[2]}
    own |= {name: os.pathsep.join(filter(None, [str(first), os.environ.get(name)])) for name, first in paths.items()}
    return dict(os.environ) | own
