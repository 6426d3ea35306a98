"""The monitor of a run: it reads events from the ranks, shows progress, and reports how the run ended."""

import os
import re
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from course_lib.errors import CourseError
from course_lib.files import naming
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress
from course_lib.training import checkpoint, events, launcher_process, log, planner, stop_request
from course_lib.training.link import Link
from course_lib.training.nodes import Nodes
from course_lib.training.task import Task

OnMessage = Callable[[str], None]
PRINT: OnMessage = partial(print, flush=True)
# seconds for the current step and a checkpoint, after an interruption
PATIENCE = 120.0
# seconds for a command by ssh
SSH = 60.0
# what pdsh prints when the command on a node fails; 255 is ssh's own failure
PDSH = re.compile(rb"^pdsh@\S+: (\S+): ssh exited with exit code (\d+)")


class Monitor:
    """A monitor for one run of `steps` optimizer steps. `link` leads to nodes that start their ranks themselves."""

    def __init__(self, task: Task, nodes: Nodes, steps: int, on_message: OnMessage, link: Link | None = None) -> None:
        self.task, self.nodes, self.steps, self.on_message, self.link = task, nodes, steps, on_message, link
        self.folder: Path = task.settings.engine.output_dir
        # rank → the first event that reports its end
        self.ended: dict[int, dict[str, Any]] = {}
        # names of nodes whose connection was closed, and of the first node that ssh reports as failed
        self.lost: list[str] = []
        self.failed = ""
        # rank → its process id
        self.pids: dict[int, int] = {}
        self.reached = 0
        self.saving = False
        self.bar = progress(steps, "step", tr("starting {task}, ranks: {ranks}", task=task.title(), ranks=nodes.ranks))

    def follow(self, command: list[str], environment: dict[str, str]) -> None:
        """Run the launcher until it exits. Raises CourseError if a rank fails, or the run is interrupted."""
        with open(self.folder / "output.txt", "ab") as output, self.bar, launcher_process.interruptible():
            reader, writer = os.pipe()
            with open(reader, "rb") as lines:
                try:
                    process = launcher_process.start(command, environment, self.folder, writer)
                    if self.link:
                        self.link.forward(writer)
                        threading.Thread(target=self._stop_others_after, args=(process,), daemon=True).start()
                finally:
                    os.close(writer)
                try:
                    self._read(process, lines, output)
                # Without this process, nothing reads the output of the ranks, so stop them too.
                except BaseException as error:
                    cause = launcher_process.interruption(error)
                    if cause:
                        self._save(process, lines, output)
                    self._end(process)
                    if not cause:
                        raise
                    stopped = self._stopped(*cause)
                    # If the terminal is gone, this is the only place for the message.
                    with suppress(OSError):
                        output.write(f"{stopped}\n".encode())
                    raise stopped from error
        if any(event.get("stopped") for event in self.ended.values()):
            raise self._stopped("stopped by SIGUSR1", 128 + stop_request.SIGNAL)
        self._judge(process.returncode)

    def _stop_others_after(self, process: launcher_process.Launcher) -> None:
        """Stop the ranks of the other nodes if the launcher of this node fails."""
        if process.wait() and self.link:
            self.link.tell(stop=True)

    def _stopped(self, cause: str, code: int) -> CourseError:
        where = f"at step {self.reached} of {self.steps}" if self.reached else "before the first step"
        stopped = CourseError(f"{cause} {where}; {self._how_on()}")
        stopped.exit_code = code
        return stopped

    def _end(self, process: launcher_process.Launcher) -> None:
        launcher_process.end(process, at_once=self.nodes.by_ssh)

    def _read(self, process: launcher_process.Launcher, lines: IO[bytes], output: IO[bytes]) -> None:
        """Handle the output of the launcher and the ranks until all of them have exited."""
        for raw in lines:
            event = events.parse(raw.decode(errors="replace"))
            if event:
                self._take(event, process)
                continue
            with naming(self.folder / "output.txt"):
                output.write(raw)
                output.flush()
            if self.nodes.by_ssh and not self.failed and (end := PDSH.search(raw)):
                self.failed = end[1].decode()
                if int(end[2]) == 255:
                    self.lost.append(self.failed)
                # pdsh would wait for the other nodes, whose ranks may wait for those of this node.
                self._end(process)
        process.wait()

    def _save(self, process: launcher_process.Launcher, lines: IO[bytes], output: IO[bytes]) -> None:
        """Let the ranks finish their step, save a checkpoint and exit, in at most PATIENCE seconds."""
        launcher_process.ignore_stop_request()
        # The terminal or the reader of a pipe may be gone.
        with suppress(OSError):
            self.bar.set_postfix_str(tr("saving a checkpoint; Ctrl-C again stops at once"))
        with suppress(OSError):
            self.bar.close()
        self.bar.disable, self.on_message, self.saving = True, lambda _: None, True
        # Before the first step, there is nothing to save.
        if not self.reached or not self._ask(process):
            return
        limit = threading.Timer(PATIENCE, self._end, [process])
        limit.start()
        # Another Ctrl-C ends the wait.
        with suppress(KeyboardInterrupt):
            self._read(process, lines, output)
        limit.cancel()

    def _ask(self, process: launcher_process.Launcher) -> bool:
        """Send the stop request to ranks, and return whether one has got it. All ranks stop if one of them has."""
        if self.nodes.by_ssh:
            words = ["ssh", self.nodes.name, "kill", f"-{stop_request.NAME}", str(self.pids[0])]
            with suppress(OSError, subprocess.TimeoutExpired):
                return subprocess.run(words, capture_output=True, timeout=SSH, check=False).returncode == 0
            return False
        asked = False
        for pid in self.pids.values():
            # A process id of another machine may belong to any process of this one.
            with suppress(ProcessLookupError):
                if os.getpgid(pid) == process.pid:
                    os.kill(pid, stop_request.SIGNAL)
                    asked = True
        return asked

    def _take(self, event: dict[str, Any], process: launcher_process.Launcher) -> None:
        kind = event["kind"]
        if kind == "start":
            self.pids[event["rank"]] = event["pid"]
        elif kind == "interrupted" and not self.saving:
            where = self.nodes.names[event["node"]]
            raise launcher_process.Elsewhere(event["code"], f"{event['cause']} on {where}")
        elif kind in ("finished", "error", "terminated"):
            self.ended.setdefault(event["rank"], event)
        elif kind == "lost" or (kind == "done" and event["code"]):
            if kind == "lost":
                self.lost.append(self.nodes.names[event["node"]])
            # The other ranks may wait for those of that node.
            self._end(process)
            if self.link:
                self.link.tell(stop=True)
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
                figures = {"loss": entry["loss"], "most": entry["loss_max"], "rate": entry["tokens_per_second"]}
                summary = tr("loss {loss:.3f} (max {most:.3f}), {rate:.0f} tokens/s", **figures)
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
        if event := errors.get("node"):
            raise CourseError(f"{self.nodes.of(event['rank'])}: {event['message']}")
        if event := errors.get("user"):
            raise CourseError(event["message"])
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
            lost = ", ".join(self.lost)
            problem = f"{lost} was lost (the machine, its network, or course on it); the others were stopped"
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
