"""Ranks for tests: a script in several processes, as starter.py starts ranks, and a killed run."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
from course_lib.settings import config
from course_lib.training import extensions, log
from course_lib.training.settings import RunConfig

from tests.waiting import LIMIT, until


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def environment(ranks: int) -> dict[str, str]:
    """The environment of a CPU rank, but for its number."""
    return os.environ | extensions.build_environment() | {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "DS_ACCELERATOR": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
    }  # fmt: skip


def launch(script: Path, *arguments: str, seconds: float = LIMIT, ranks: int = 2) -> str:
    """What the ranks printed."""
    extensions.remove_stale_locks()
    shared, processes = environment(ranks), []
    for rank in range(ranks):
        variables = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        processes.append(subprocess.Popen(
            [sys.executable, "-u", str(script), *arguments], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        ))  # fmt: skip
    try:
        said = [process.communicate(timeout=seconds)[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert not any(process.returncode for process in processes), "\n".join(said)[-5000:]
    return "".join(said)


def kill_in_step(step: int, words: str, settings: RunConfig) -> None:
    """Start a training command and kill all its processes in a step, of which the log does not yet tell."""
    run = settings.engine.output_dir
    file = run.with_suffix(".yaml")
    file.write_text(config.to_yaml(settings), encoding="utf8")
    waiting = [sys.executable, "-m", "tests.training.held", str(run.with_suffix(".never")), str(step)]
    process = subprocess.Popen(
        [*waiting, *words.split(), "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: (run / log.FILE).exists() and log.read(run)[-1]["step"] == step - 1, process)
    finally:
        for member in [*psutil.Process(process.pid).children(recursive=True), process]:
            member.kill()
        process.wait()
