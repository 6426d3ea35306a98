"""The monitor for the DeepSpeed launcher.

It reads events from the ranks, shows progress, and reports how the run ended.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.files import naming
from course_lib.progress import progress
from course_lib.training import checkpoint, events, log
from course_lib.training.task import Task

Say = Callable[[str], None]
ALOUD: Say = partial(print, flush=True)


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
        self.reached = 0
        starting = f"starting {ranks} rank{'s' * (ranks > 1)} for {task.title()}"
        self.bar = progress(steps, "step", starting)

    def follow(self, command: list[str], environment: dict[str, str]) -> None:
        """Run the launcher until it exits. Raises CourseError unless every rank finishes."""
        with open(self.folder / "output.txt", "ab") as output, self.bar, _termination_interrupts():
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=environment, cwd=self.folder, start_new_session=True,
            )  # fmt: skip
            assert process.stdout
            try:
                for raw in process.stdout:
                    event = events.parse(raw.decode(errors="replace"))
                    if event is None:
                        with naming(self.folder / "output.txt"):
                            output.write(raw)
                            output.flush()
                    else:
                        self._take(event)
                process.wait()
            except KeyboardInterrupt:
                _end(process)
                self.say(f"stopped at step {self.reached} of {self.steps}, {self._how_on()}")
                raise
            # Without this process, nothing reads the output of the ranks, so stop them too.
            except BaseException:
                _end(process)
                raise
        self._judge(process.returncode)

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind in ("finished", "error", "terminated"):
            self.ended.setdefault(event["rank"], event)
        elif kind == "stage":
            self.bar.set_postfix_str(event["what"])
        elif kind == "training":
            self.bar.reset(total=event["steps"])
            self.bar.set_postfix_str("", refresh=False)
            self.bar.set_description(f"training {self.task.title()}")
            self._move(event["step"])
        elif kind == "step":
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
            f"(with another stage or number of GPUs, start a new run in another engine.output_dir); {self._how_on()}"
        )


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt inside the block, as Ctrl-C does, so that the ranks are stopped first.

    This has no effect outside the main thread, where Python does not allow signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Stop the launcher and its ranks, first with SIGTERM and after 20 seconds with SIGKILL."""
    for sign, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, sign)
            process.wait(patience)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
