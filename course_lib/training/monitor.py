"""The monitor for the DeepSpeed launcher.

It reads events from the ranks, shows progress, and reports how the run ended. If the run is interrupted (see
launcher_process.py), the ranks save a checkpoint first.
"""

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from course_lib.errors import CourseError
from course_lib.files import naming
from course_lib.language.words import tr
from course_lib.progress import progress
from course_lib.training import checkpoint, events, launcher_process, log, node_check, stop_request
from course_lib.training.node_link import Leader
from course_lib.training.nodes import Nodes
from course_lib.training.task import Task

Say = Callable[[str], None]
ALOUD: Say = partial(print, flush=True)
# seconds for the current step and a checkpoint, after an interruption
PATIENCE = 120.0
# seconds for a command by ssh
SSH = 60.0
# what pdsh prints when the command on a node fails; 255 is ssh's own failure
PDSH = re.compile(rb"^pdsh@\S+: (\S+): ssh exited with exit code (\d+)")


class Stopped(CourseError):
    """Error for a run that was interrupted; the exit code is that of the signal."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Elsewhere(SystemExit):
    """Exception for a run that was interrupted on another node."""

    def __init__(self, cause: str, code: int) -> None:
        super().__init__(code)
        self.cause = cause


class Monitor:
    """A monitor that runs the launcher for one training run and reads its output.

    Args:
        task: the task to train.
        nodes: the nodes, all of whose ranks must finish.
        steps: optimizer steps in the whole run.
        say: receives each line of the log.
        leader: the connections to the nodes that start their ranks themselves.
    """

    def __init__(self, task: Task, nodes: Nodes, steps: int, say: Say, leader: Leader | None = None) -> None:
        self.task, self.nodes, self.steps, self.say = task, nodes, steps, say
        self.ranks, self.leader = nodes.ranks, leader or Leader(nodes)
        self.folder: Path = task.settings.engine.output_dir
        # rank → the first event that reports its end
        self.ended: dict[int, dict[str, Any]] = {}
        # names of nodes whose connection was closed
        self.lost: list[str] = []
        # name of the first node that ssh reports as failed
        self.failed = ""
        # rank → its process id
        self.pids: dict[int, int] = {}
        self.reached = 0
        self.saving = False
        self.own, self.started = node_check.record(), time.time()
        one = tr("starting 1 rank for {task}", task=task.title())
        starting = (
            tr("starting {ranks} ranks for {task}", ranks=self.ranks, task=task.title()) if self.ranks > 1 else one
        )
        self.bar = progress(steps, "step", starting)

    def follow(self, command: list[str], environment: dict[str, str]) -> None:
        """Run the launcher until it exits. Raises Stopped if the run is interrupted.

        Raises CourseError if a rank does not finish for another reason.
        """
        with open(self.folder / "output.txt", "ab") as output, self.bar, launcher_process.interruptible():
            reader, writer = os.pipe()
            with open(reader, "rb") as lines:
                try:
                    process = launcher_process.start(command, environment, self.folder, writer)
                    self.leader.forward(writer)
                    threading.Thread(target=self._stop_others_after, args=(process,), daemon=True).start()
                finally:
                    os.close(writer)
                try:
                    self._read(process, lines, output)
                # Without this process, nothing reads the output of the ranks, so stop them too.
                except BaseException as error:
                    cause = launcher_process.interruption(error)
                    if isinstance(error, Elsewhere):
                        cause = error.cause, int(str(error.code))
                    if cause:
                        self._save(process, lines, output)
                    self._end(process)
                    if cause is None:
                        raise
                    raise self._stopped(*cause, output) from error
        if any(event.get("stopped") for event in self.ended.values()):
            raise self._stopped("stopped by SIGUSR1", 128 + stop_request.SIGNAL, None)
        self._judge(process.returncode)

    def _stop_others_after(self, process: launcher_process.Launcher) -> None:
        """Stop the ranks of the other nodes if the launcher of this node fails."""
        if process.wait():
            self.leader.tell(stop=True)

    def _stopped(self, cause: str, code: int, output: IO[bytes] | None) -> Stopped:
        on = self._how_on()
        farewell = (
            f"{cause} at step {self.reached} of {self.steps}; {on}"
            if self.reached
            else f"{cause} before the first step; {on}"
        )
        # If the terminal is gone, this is the only place for the message.
        with contextlib.suppress(OSError):
            if output:
                output.write(f"{farewell}\n".encode())
        return Stopped(farewell, code)

    def _end(self, process: launcher_process.Launcher) -> None:
        launcher_process.end(process, at_once=self.nodes.by_ssh)

    def _read(self, process: launcher_process.Launcher, lines: IO[bytes], output: IO[bytes]) -> None:
        """Handle the output of the launcher and the ranks until all of them have exited."""
        for raw in lines:
            event = events.parse(raw.decode(errors="replace"))
            if event is None:
                with naming(self.folder / "output.txt"):
                    output.write(raw)
                    output.flush()
                if self.nodes.by_ssh and not self.failed and (end := PDSH.search(raw)):
                    self.failed = end[1].decode()
                    if int(end[2]) == 255:
                        self.lost.append(self.failed)
                    # pdsh would wait for the other nodes, whose ranks may wait for those of this node.
                    self._end(process)
            elif event["kind"] in ("lost", "done"):
                if event["kind"] == "lost":
                    self.lost.append(self.nodes.names[event["node"]])
                # The other ranks may wait for those of that node.
                if event.get("code", 1):
                    self._end(process)
                    self.leader.tell(stop=True)
            else:
                self._take(event)
        process.wait()

    def _save(self, process: launcher_process.Launcher, lines: IO[bytes], output: IO[bytes]) -> None:
        """Let the ranks finish their step, save a checkpoint and exit, in at most PATIENCE seconds.

        Before the first step, there is nothing to save. Another Ctrl-C ends the wait.
        """
        launcher_process.ignore_stop_request()
        # The terminal or the reader of a pipe may be gone.
        with contextlib.suppress(OSError):
            self.bar.set_postfix_str(tr("saving a checkpoint; Ctrl-C again stops at once"))
        with contextlib.suppress(OSError):
            self.bar.close()
        self.bar.disable, self.say, self.saving = True, lambda _: None, True
        if not self.reached or not self._ask(process):
            return
        limit = threading.Timer(PATIENCE, self._end, [process])
        limit.start()
        with contextlib.suppress(KeyboardInterrupt):
            self._read(process, lines, output)
        limit.cancel()

    def _ask(self, process: launcher_process.Launcher) -> bool:
        """Send the stop request to ranks, and return whether one has got it. All ranks stop if one of them has."""
        if self.nodes.by_ssh:
            words = [
                "ssh",
                self.nodes.name,
                "kill",
                f"-{stop_request.NAME}",
                str(self.pids[0]),
            ]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                return subprocess.run(words, capture_output=True, timeout=SSH, check=False).returncode == 0
            return False
        asked = False
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                # A process id of another machine may belong to any process of this one.
                if os.getpgid(pid) == process.pid:
                    os.kill(pid, stop_request.SIGNAL)
                    asked = True
        return asked

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "start":
            self.pids[event["rank"]] = event["pid"]
            if self.nodes.several:
                between = (self.started, time.time())
                node_check.compare(self.own, event["record"], self.nodes.of(event["rank"]), between)
        elif kind == "interrupted" and not self.saving:
            raise Elsewhere(f"{event['cause']} on {self.nodes.names[event['node']]}", event["code"])
        elif kind in ("finished", "error", "terminated"):
            self.ended.setdefault(event["rank"], event)
        elif kind == "stage":
            self.bar.set_postfix_str(tr(event["what"]))
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
                said = tr("loss {loss:.3f} (max {most:.3f}), {rate:.0f} tokens/s", **figures)
                self.bar.set_postfix_str(said, refresh=False)
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
        for why in ("node", "user", "memory"):
            for event in errors:
                if event["why"] == why:
                    node = f"{self.nodes.of(event['rank'])}: " if why == "node" else ""
                    raise CourseError(self._memory_line(event) if why == "memory" else node + event["message"])
        silent = sorted(set(range(self.ranks)) - self.ended.keys())
        if self.failed:
            # The ranks of the other nodes were killed.
            silent = [rank for rank in silent if self.nodes.of(rank) == self.failed]
        crashed = [event for event in errors if event["why"] == "crash"]
        if self.lost:
            what = (
                f"{', '.join(self.lost)} was lost (the machine, its network, or course on it); the others were stopped"
            )
        elif crashed:
            what = f"{self._name(crashed[0]['rank'])} failed: {crashed[0]['message']}"
        elif silent and self.ended:
            reason = (
                "killed, lost, or out of memory" if self.nodes.several else "killed, or the machine ran out of memory"
            )
            what = f"{self._name(*silent)} ended without an error message ({reason}); the others were stopped"
        elif errors:
            what = f"{self._name(errors[0]['rank'])} failed: {errors[0]['message']}"
        else:
            what = f"the launcher ended with code {code} before training began: {self._last_output()}"
        raise CourseError(f"{what}; at step {self.reached} of {self.steps}, {self._how_on()}")

    def _name(self, *ranks: int) -> str:
        """Return the numbers of ranks, and their nodes if there are several."""
        nodes = ", ".join(dict.fromkeys(map(self.nodes.of, ranks)))
        numbers = ", ".join(map(str, ranks))
        return f"rank {numbers} on {nodes}" if self.nodes.several else f"rank {numbers}"

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
