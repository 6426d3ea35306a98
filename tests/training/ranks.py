"""Ranks for tests: a script in several processes, as starter.py starts ranks, and a killed run."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
from course_lib.settings import config
from course_lib.training import extensions, log
from course_lib.training.settings import RunConfig

from tests.waiting import LIMIT, until


def free_ports(number: int) -> list[str]:
    """TCP ports that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in sockets]


def environment(ranks: int, groups: int) -> dict[str, str]:
    """The environment of a CPU rank, but for its number; GROUP_PORTS has a port for each group, for scripts with several.

    Of two ranks, one may ask for the next group while the other still has the store of the last one.
    """
    ports = free_ports(groups)
    return os.environ | extensions.build_environment() | {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": ports[0],
        "GROUP_PORTS": " ".join(ports),
        "DS_ACCELERATOR": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "PYTHONFAULTHANDLER": "1",
    }  # fmt: skip


def launch(script: Path, *arguments: str, seconds: float = LIMIT, ranks: int = 2, groups: int = 1) -> str:
    """What the ranks printed. If one fails, the others wait for it, so they are killed; one that hangs says where."""
    extensions.remove_stale_locks()
    shared, processes = environment(ranks, groups), []
    with ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(ranks)]
        for rank, output in enumerate(outputs):
            variables = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(subprocess.Popen(
                [sys.executable, "-u", str(script), *arguments], env=variables, stdout=output, stderr=subprocess.STDOUT,
                text=True, start_new_session=True,
            ))  # fmt: skip
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                codes = [process.poll() for process in processes]
                if None not in codes or any(codes):
                    break
                time.sleep(0.02)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGABRT)  # faulthandler prints where each thread is
                    process.wait()
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
        for output in outputs:
            output.seek(0)
        said = [output.read() for output in outputs]
    codes = [process.returncode for process in processes]
    for code in codes:
        assert code == 0, "\n".join(f"exit codes {codes}; a rank says {text[-5000:]}" for text in said)
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
