"""A stand-in for the `course` command in tests of starter.py: it runs the Python text in COURSE_TEST_RANK.

The text knows its `rank`, the run's `folder`, and the functions below. It runs without PyTorch unless it imports it.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import yaml
from course_lib.training import checkpoint, interruptions, log

TEXT = "COURSE_TEST_RANK"
if __name__ == "__main__":
    RANK = int(os.environ["RANK"])
    SETTINGS = Path(sys.argv[sys.argv.index("-c") + 1])
    FOLDER = Path(yaml.safe_load(SETTINGS.read_text(encoding="utf8"))["engine"]["output_dir"])


def report(message: str, code: int = 1) -> NoReturn:
    """End as `course` ends after a CourseError."""
    (FOLDER / ".ended").touch()
    print(f"course: {message}", file=sys.stderr, flush=True)
    os._exit(code)


def fail(error: Exception) -> NoReturn:
    """End by a bug."""
    (FOLDER / ".ended").touch()
    raise error


def miss(waits: bool = True) -> NoReturn:
    """End as a rank does whose peer has ended, when it has."""
    while waits and not (FOLDER / ".ended").exists():
        time.sleep(0.01)
    raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234")


def wait() -> NoReturn:
    """Wait as a rank does whose peer never answers."""
    while True:
        time.sleep(1)


def kill() -> None:
    """End as the operating system ends a process."""
    (FOLDER / ".ended").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def step(number: int) -> None:
    """Compute a step, which the first rank logs."""
    if RANK == 0:
        entry = {"kind": "train", "step": number, "loss": 1.0, "tokens_per_second": 10.0}
        log.append(FOLDER, entry)
        print(f"step {number}", flush=True)


def save(number: int) -> None:
    """Save a checkpoint."""
    if RANK == 0:
        checkpoint.record(FOLDER, number)
        checkpoint.at(FOLDER, number).mkdir(parents=True)
        checkpoint.mark_complete(checkpoint.at(FOLDER, number))


def train(seconds: float = 0.02) -> None:
    """Compute steps until a stop is requested, and save a checkpoint."""
    with interruptions.listening() as request:
        number = 1
        step(number)
        while not request.cause:
            time.sleep(seconds)
            number += 1
            step(number)
        save(number)
        error = request.error(number, 10**6, FOLDER)
        report(str(error), error.exit_code)


if __name__ == "__main__":
    interruptions.follow_starter()
    names = {"rank": RANK, "folder": FOLDER, "os": os, "sys": sys, "time": time}
    exec(os.environ[TEXT], globals() | names)
