"""The monitor for the DeepSpeed launcher.

It reads events from the ranks, shows progress, and reports how the run ended. If the run is interrupted, the ranks save
a checkpoint first: by Ctrl-C, SIGTERM or SIGHUP (a closed terminal), or because the reader of the output has closed its
pipe, as `head` does.
"""

import contextlib
import errno
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from course_lib.errors import CourseError
from course_lib.files import naming
from course_lib.progress import progress
from course_lib.training import checkpoint, events, log, stop_request
from course_lib.training.task import Task

Say = Callable[[str], None]
ALOUD: Say = partial(print, flush=True)
# seconds for the current step and a checkpoint, after an interruption
PATIENCE = 120.0


class Stopped(CourseError):
    """Error for a run that was interrupted; the exit code is that of the signal."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Monitor:
    """A monitor that runs the launcher for one training run and reads its output.

    Args:
        task: the task to train.
        ranks: number of ranks that must finish.
        steps: optimizer steps in the whole run.
        say: receives each line of the log.
    """

    def __init__(self, task: Task, ranks: int, steps: int, say: Say) -> None:
        self.task, self.ranks, self.steps, self.say = task, ranks, steps, say
        self.folder: Path = task.settings.engine.output_dir
        # rank → the first event that reports its end
        self.ended: dict[int, dict[str, Any]] = {}
        # process ids of the ranks
        self.pids: list[int] = []
        self.reached = 0
        starting = f"starting {ranks} rank{'s' * (ranks > 1)} for {task.title()}"
        self.bar = progress(steps, "step", starting)

    def follow(self, command: list[str], environment: dict[str, str]) -> None:
        """Run the launcher until it exits. Raises Stopped if the run is interrupted.

        Raises CourseError if a rank does not finish for another reason.
        """
        with open(self.folder / "output.txt", "ab") as output, self.bar, _termination_interrupts():
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=environment, cwd=self.folder, start_new_session=True,
            )  # fmt: skip
            try:
                self._read(process, output)
            # Without this process, nothing reads the output of the ranks, so stop them too.
            except BaseException as error:
                cause = _interruption(error)
                if cause:
                    self._save(process, output)
                _end(process)
                if cause is None:
                    raise
                at = f"at step {self.reached} of {self.steps}" if self.reached else "before the first step"
                farewell = f"{cause[0]} {at}; {self._how_on()}"
                # If the terminal is gone, this is the only place for the message.
                with contextlib.suppress(OSError):
                    output.write(f"{farewell}\n".encode())
                raise Stopped(farewell, cause[1]) from error
        self._judge(process.returncode)

    def _read(self, process: "subprocess.Popen[bytes]", output: IO[bytes]) -> None:
        """Handle the output of the launcher and the ranks until all of them have exited."""
        assert process.stdout
        for raw in process.stdout:
            event = events.parse(raw.decode(errors="replace"))
            if event is None:
                with naming(self.folder / "output.txt"):
                    output.write(raw)
                    output.flush()
            else:
                self._take(event)
        process.wait()

    def _save(self, process: "subprocess.Popen[bytes]", output: IO[bytes]) -> None:
        """Let the ranks finish their step, save a checkpoint and exit, in at most PATIENCE seconds.

        Before the first step, there is nothing to save. Ranks that a hostfile started through ssh do not get the
        signal, so they are stopped at once. Another Ctrl-C ends the wait.
        """
        # The terminal or the reader of a pipe may be gone.
        with contextlib.suppress(OSError):
            self.bar.set_postfix_str("saving a checkpoint; Ctrl-C again stops at once")
        with contextlib.suppress(OSError):
            self.bar.close()
        self.bar.disable, self.say = True, lambda _: None
        asked = False
        for pid in self.pids if self.reached else ():
            with contextlib.suppress(ProcessLookupError):
                # A process id of another machine may belong to any process of this one.
                if os.getpgid(pid) == process.pid:
                    os.kill(pid, stop_request.SIGNAL)
                    asked = True
        if not asked:
            return
        limit = threading.Timer(PATIENCE, _end, [process])
        limit.start()
        with contextlib.suppress(KeyboardInterrupt):
            self._read(process, output)
        limit.cancel()

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "start":
            self.pids.append(event["pid"])
        elif kind in ("finished", "error", "terminated"):
            self.ended.setdefault(event["rank"], event)
        elif kind == "stage":
            self.bar.set_postfix_str(event["what"])
        elif kind == "training":
            self.bar.reset(total=event["steps"])
            self.bar.set_postfix_str("", refresh=False)
            self.bar.set_description(f"training {self.task.title()}")
            self._move(event["step"])
        # Not every step is reported, but a step with a checkpoint is.
        elif kind in ("step", "saved"):
            self._move(event["step"])
        elif kind == "log":
            entry = event["entry"]
            if entry["kind"] == "train":
                loss = f"loss {entry['loss']:.3f} (max {entry['loss_max']:.3f})"
                self.bar.set_postfix_str(f"{loss}, {entry['tokens_per_second']:.0f} tokens/s", refresh=False)
            self.bar.clear()
            self.say(log.line(entry))

    def _move(self, step: int) -> None:
        self.bar.update(step - self.reached)
        self.reached = step

    def _judge(self, code: int) -> None:
        """Raise CourseError if the run failed, naming the first cause rather than the errors that followed from it."""
        errors = [event for event in self.ended.values() if event["kind"] == "error"]
        if len(self.ended) == self.ranks and all(event["kind"] == "finished" for event in self.ended.values()):
            return
        for why in ("user", "memory"):
            for event in errors:
                if event["why"] == why:
                    raise CourseError(event["message"] if why == "user" else self._memory_line(event))
        silent = sorted(set(range(self.ranks)) - self.ended.keys())
        crashed = [event for event in errors if event["why"] == "crash"]
        if crashed:
            what = f"rank {crashed[0]['rank']} failed: {crashed[0]['message']}"
        elif silent and self.ended:
            what = (
                f"rank {', '.join(map(str, silent))} ended without an error message (killed, or the machine ran out of "
                "memory); the others were stopped"
            )
        elif errors:
            what = f"rank {errors[0]['rank']} failed: {errors[0]['message']}"
        else:
            what = f"the launcher ended with code {code} before training began: {self._last_output()}"
        raise CourseError(f"{what}; at step {self.reached} of {self.steps}, {self._how_on()}")

    def _how_on(self) -> str:
        whole = checkpoint.whole_checkpoints(self.folder)
        back = f"--resume continues from {whole[0].name}" if whole else "no checkpoint was saved yet"
        return f"{back}; all output is in {self.folder / 'output.txt'}"

    def _last_output(self) -> str:
        lines = (self.folder / "output.txt").read_text(encoding="utf8", errors="replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "no output")

    def _memory_line(self, event: dict[str, Any]) -> str:
        return (
            f"out of memory on rank {event['rank']} at step {self.reached}: {self.task.memory_help(self.ranks)} "
            f"(another number of GPUs may continue this run; for another stage, start a new run in another "
            f"engine.output_dir); {self._how_on()}"
        )


def _interruption(error: BaseException) -> tuple[str, int] | None:
    """Return what interrupted the run and the exit code for it, or None for an error."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 128 + signal.SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return {143: "terminated", 129: "hung up"}.get(error.code, "ended"), error.code
    # Nobody reads standard output any more; errors in files have a name.
    if isinstance(error, OSError) and error.filename is None and error.errno in (errno.EPIPE, errno.EIO):
        return "the reader of the output has ended, so the run stopped", 128 + signal.SIGPIPE
    return None


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt inside the block, as Ctrl-C does, so that the ranks are stopped.

    Signals that have a handler, as in cli.py, or are ignored, as under `nohup`, stay as they are. This has no effect
    outside the main thread, where Python does not allow signal handlers.
    """
    numbers = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) == signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Stop the launcher and its ranks, first with SIGTERM and after 20 seconds with SIGKILL."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)
    # The launcher waits for its ranks; if it could not, they are still in its process group.
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
