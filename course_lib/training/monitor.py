"""The monitor of a run: it reads events from the ranks, shows progress, and reports how the run ended."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from course_lib.errors import CourseError
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress
from course_lib.training import checkpoint, events, log, planner
from course_lib.training.interruptions import STOP, cause_of, interruptible
from course_lib.training.nodes import Nodes
from course_lib.training.task import Task

OnMessage = Callable[[str], None]
PRINT: OnMessage = partial(print, flush=True)
# seconds for the current step and a checkpoint, after an interruption
PATIENCE = 120.0
# What pdsh and srun print when the command on a node fails. 255 is ssh's own failure.
FAILED = re.compile(
    rb"^pdsh@\S+: (?P<pdsh>\S+): ssh exited with exit code (?P<code>\d+)"
    rb"|^srun: error: (?P<srun>\S+): tasks? \S+ (?P<killed>Killed)?"
    rb"|^srun: error: Node failure on (?P<lost>\S+)"
)


class Monitor:
    """A monitor for one run of `steps` optimizer steps."""

    def __init__(self, task: Task, nodes: Nodes, steps: int, on_message: OnMessage) -> None:
        self.task, self.nodes, self.steps, self.on_message = task, nodes, steps, on_message
        self.folder: Path = task.settings.engine.output_dir
        # rank → the first event that reports its end
        self.ended: dict[int, dict[str, Any]] = {}
        # the first node that ssh or srun reports as failed, and whether the node itself or its connection is gone
        self.failed, self.lost = "", False
        # process id of rank 0
        self.pid = 0
        self.reached = 0
        self.bar = progress(steps, "step", tr("starting {task}, ranks: {ranks}", task=task.title(), ranks=nodes.ranks))

    def follow(self, command: list[str], environment: dict[str, str]) -> None:
        """Run the launcher until it exits. Raises CourseError if a rank fails, or the run is interrupted."""
        with open(self.folder / "output.txt", "ab") as output, self.bar, interruptible(), subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=environment, cwd=self.folder, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                self._read(process, output)
            # Without this process, nothing reads the output of the ranks, so stop them too.
            except BaseException as error:
                cause = cause_of(error)
                if cause:
                    self._save(process, output)
                self._end(process)
                if not cause:
                    raise
                stopped = self._stopped(*cause)
                # If the terminal is gone, this is the only place for the message.
                with suppress(OSError):
                    output.write(f"{stopped}\n".encode())
                raise stopped from error
        if any(event.get("stopped") for event in self.ended.values()):
            raise self._stopped("stopped by SIGUSR1", 128 + STOP)
        self._judge(process.returncode)

    def _stopped(self, cause: str, code: int) -> CourseError:
        where = f"at step {self.reached} of {self.steps}" if self.reached else "before the first step"
        stopped = CourseError(f"{cause} {where}; {self._how_on()}")
        stopped.exit_code = code
        return stopped

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """Stop the launcher and its ranks with SIGTERM, and after 20 seconds with SIGKILL.

        DeepSpeed's runner for ssh answers SIGTERM with a `pkill -f` on all nodes, which ends other runs too. It is
        killed at once, and its ranks end because the ssh connection closes their output.
        """
        signals = (signal.SIGTERM, signal.SIGKILL) if self.nodes.started_by != "ssh" else (signal.SIGKILL,)
        for number in signals:
            # Ranks that the launcher could not stop are still in its process group.
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(20)

    def _read(self, process: "subprocess.Popen[bytes]", output: IO[bytes]) -> None:
        """Handle the output of the launcher and the ranks until all of them have exited."""
        assert process.stdout
        for raw in process.stdout:
            if event := events.parse(raw.decode(errors="replace")):
                self._take(event)
                continue
            output.write(raw)
            output.flush()
            if not self.failed and (end := FAILED.search(raw)):
                self.failed = (end["pdsh"] or end["srun"] or end["lost"]).decode()
                self.lost = bool(end["killed"] or end["lost"] or end["code"] == b"255")
                # The ranks of the other nodes may wait for those of this node.
                self._end(process)
        process.wait()

    def _save(self, process: "subprocess.Popen[bytes]", output: IO[bytes]) -> None:
        """Let the ranks finish their step, save a checkpoint and exit, in at most PATIENCE seconds."""
        # The terminal or the reader of a pipe may be gone.
        with suppress(OSError):
            self.bar.set_postfix_str(tr("saving a checkpoint; Ctrl-C again stops at once"))
        with suppress(OSError):
            self.bar.close()
        self.bar.disable, self.on_message = True, lambda _: None
        # Before the first step, there is nothing to save.
        if not self.reached or not self._ask(process):
            return
        limit = threading.Timer(PATIENCE, self._end, [process])
        limit.start()
        # Another Ctrl-C ends the wait.
        with suppress(KeyboardInterrupt):
            self._read(process, output)
        limit.cancel()

    def _ask(self, process: "subprocess.Popen[bytes]") -> bool:
        """Send the stop request to rank 0, or by `srun` to all ranks, and return whether it was sent."""
        if self.nodes.started_by == "ssh":
            words = ["ssh", self.nodes.first, "kill", "-USR1", str(self.pid)]
            with suppress(OSError, subprocess.TimeoutExpired):
                return subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 0
            return False
        with suppress(ProcessLookupError):
            # `srun` forwards the signal.
            os.kill(process.pid if self.nodes.started_by else self.pid, STOP)
            return True
        return False

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "start" and event["rank"] == 0:
            self.pid = event["pid"]
        elif kind in ("finished", "error", "terminated"):
            self.ended.setdefault(event["rank"], event)
        elif kind == "stage":
            stage = event["what"]
            self.bar.set_postfix_str(tr(stage))
        elif kind == "training":
            self.bar.reset(total=event["steps"])
            self.bar.set_postfix_str("", refresh=False)
            self.bar.set_description(tr("training {task}", task=self.task.title()))
            self._move(event["step"])
        # Not every step is reported, but a step with a checkpoint is.
        elif kind in ("step", "saved"):
            self._move(event["step"])
        elif kind == "log":
            entry = event["entry"]
            if entry["kind"] == "train":
                summary = tr("loss {loss:.3f}, {tokens_per_second:.0f} tokens/s", **entry)
                self.bar.set_postfix_str(summary, refresh=False)
            self.bar.clear()
            self.on_message(log.line(entry))

    def _move(self, step: int) -> None:
        self.bar.update(step - self.reached)
        self.reached = step

    def _judge(self, code: int) -> None:
        """Raise CourseError if the run failed, naming the first cause rather than the errors that followed from it."""
        ranks = range(self.nodes.ranks)
        if all(self.ended.get(rank, {}).get("kind") == "finished" for rank in ranks):
            return
        errors = {event["why"]: event for event in reversed(self.ended.values()) if event["kind"] == "error"}
        if event := errors.get("user"):
            node = self.nodes.of(event["rank"])
            raise CourseError(event["message"] if node == self.nodes.first else f"{node}: {event['message']}")
        if event := errors.get("memory"):
            raise CourseError(
                f"out of memory on rank {event['rank']} at step {self.reached}: "
                f"{planner.advice(self.task.settings, self.nodes.ranks)} (another number of GPUs may continue this "
                f"run; for another stage, start a new run in another engine.output_dir); {self._how_on()}"
            )
        # The ranks of nodes other than a failed one were killed.
        silent = [r for r in ranks if r not in self.ended and self.failed in ("", self.nodes.of(r))]
        crashed = errors.get("crash") or (None if silent else errors.get("lost"))
        if self.lost:
            problem = f"{self.failed} was lost (the machine, its network, or a killed process); the others were stopped"
        elif crashed:
            problem = f"{self._name(crashed['rank'])} failed: {crashed['message']}"
        elif silent and self.ended:
            problem = (
                f"{self._name(*silent)} ended without an error message (killed, or the machine ran out of memory); "
                "the others were stopped"
            )
        else:
            problem = f"the launcher ended with code {code} before training began: {self._last_output()}"
        raise CourseError(f"{problem}; at step {self.reached} of {self.steps}, {self._how_on()}")

    def _name(self, *ranks: int) -> str:
        """Return the numbers of ranks, and their nodes if there are several."""
        numbers = f"rank {', '.join(map(str, ranks))}"
        names = ", ".join(dict.fromkeys(map(self.nodes.of, ranks)))
        return f"{numbers} on {names}" if len(self.nodes.slots) > 1 else numbers

    def _how_on(self) -> str:
        whole = checkpoint.whole_checkpoints(self.folder)
        back = f"--resume continues from {whole[0].name}" if whole else "no checkpoint was saved yet"
        return f"{back}; all output is in {self.folder / 'output.txt'}"

    def _last_output(self) -> str:
        lines = (self.folder / "output.txt").read_text(encoding="utf8", errors="replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "no output")
