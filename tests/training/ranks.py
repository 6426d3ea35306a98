"""Ranks for tests: a script under DeepSpeed's launcher, as course_lib.training.launch runs the worker, and a killed run."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from course_lib.settings import config
from course_lib.training import extensions, log, nodes
from course_lib.training import launch as start
from course_lib.training.settings import RunConfig
from deepspeed.launcher import runner

from tests.waiting import LIMIT, until


def launch(script: Path, *arguments: str, seconds: float = LIMIT, ranks: int = 2) -> str:
    """What the ranks printed."""
    options = ["--no_local_rank", "--master_port", str(start.free_port())]
    command = [*start.one_node({nodes.HERE: ranks}), *options, str(script), *arguments]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # always the same ninja: another one builds anew
    own = {
        "PATH": path,
        "DS_ACCELERATOR": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "TORCH_EXTENSIONS_DIR": str(extensions.build_root()),
    }
    extensions.remove_stale_locks()
    process = subprocess.Popen(
        command, env=os.environ | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said[-5000:]
    return said


def kill_in_step(step: int, words: str, settings: RunConfig) -> None:
    """Start a training command and kill all its processes in a step, of which the log does not yet tell."""
    run = settings.engine.output_dir
    file = run.with_suffix(".yaml")
    file.write_text(config.to_yaml(settings), encoding="utf8")
    held = [sys.executable, "-m", "tests.training.held", str(run.with_suffix(".never")), str(step)]
    process = subprocess.Popen(
        [*held, *words.split(), "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: (run / log.FILE).exists() and log.read(run)[-1]["step"] == step - 1, process)
    finally:
        for member in [*psutil.Process(process.pid).children(recursive=True), process]:
            member.kill()
        process.wait()


def command_of_runner(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    """The command that DeepSpeed's own runner starts on this node, which is not started."""
    started: list[list[str]] = []

    def popen(command: list[str], env: dict[str, str]) -> SimpleNamespace:
        started.append(command)
        return SimpleNamespace(wait=lambda: 0, returncode=0)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(runner, "subprocess", SimpleNamespace(Popen=popen))
    runner.main([*arguments, "rank.py"])
    return started[0]
