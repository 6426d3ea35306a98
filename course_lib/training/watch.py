"""Watches the ranks of a run until all have ended, and tells how they ended.

The exit code of a rank and its last lines say how it ended. A line on its standard input asks it to stop; when that is
closed, it ends at once: no rank outlives this process.
"""

import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from course_lib.errors import CourseError, UsageError
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress
from course_lib.training import checkpoint, log
from course_lib.training.interruptions import CAUSES, StopRequest, at_step, how_to_go_on, listening
from course_lib.training.nodes import Nodes
from course_lib.training.rank_end import RankEnd, out_of_memory
from course_lib.training.run import Run
from course_lib.training.run_dir import OUTPUT

# the number that stands for `srun`, which starts all ranks of a Slurm job
SRUN = -1
# seconds for the current step and a checkpoint, after a request to stop
PATIENCE = 120.0
# When a rank has failed, the others have these seconds to report their errors, one of which may be the first cause.
GRACE = 3.0
# seconds that `srun` gets to end its ranks
SRUN_ENDS = 20.0
# what `srun` prints before each line of a rank, and about ranks that fail
LABEL = re.compile(r" *(\d+): ?(.*)")
FAILED = re.compile(r"srun: error: (?P<node>\S+): tasks? (?P<ranks>[\d,-]+): (?:Exited with exit code (?P<code>\d+))?")
NODE_FAILED = re.compile(r"srun: error: Node failure on (\S+)")


class Watch:
    """The processes of a run, and what is known about them."""

    def __init__(self, run: Run, nodes: Nodes, steps: int | None, on_message: Callable[[str], None]) -> None:
        self.run, self.nodes, self.steps, self.on_message = run, nodes, steps, on_message
        self.folder: Path = run.settings.engine.output_dir
        names = [name for name, ranks in nodes.slots.items() for _ in range(ranks)]
        self.ranks = [RankEnd(number, name) for number, name in enumerate(names)]
        self.srun = RankEnd(SRUN, "srun")
        # the ranks that ended by themselves, in this order
        self.ended: list[RankEnd] = []
        # the name of a node that failed as a whole
        self.lost = ""
        # processes that run → their rank
        self.running: dict[subprocess.Popen[bytes], RankEnd] = {}
        self.readers: list[threading.Thread] = []
        # what the processes print: the rank, whether it is standard output, and a line
        self.lines: queue.Queue[tuple[RankEnd, bool, bytes]] = queue.Queue()
        # when the first rank failed, and when the ranks were asked to stop [s]
        self.failed_at = self.asked_at = float("inf")
        # the step of the last line in the log
        self.reached = 0
        self.bar = progress(steps, "step", tr("starting {task}, ranks: {ranks}", task=run.title(), ranks=nodes.ranks))

    def follow(self, commands: dict[int, tuple[list[str], dict[str, str]]]) -> None:
        """Run commands, rank → words and environment variables, until all have ended.

        Raises UsageError or CourseError if a rank fails, or if the run is interrupted.
        """
        with open(self.folder / OUTPUT, "ab", buffering=0) as self.output:
            with listening() as self.request:
                try:
                    for number, (words, environment) in commands.items():
                        self._start(self.srun if number == SRUN else self.ranks[number], words, environment)
                    # Ctrl-C after a request ends the ranks at once.
                    with suppress(KeyboardInterrupt):
                        self._watch()
                finally:
                    self._end()
                    self.bar.close()
            if error := self._judge():
                # If the terminal is gone, the message is only there.
                self._write(f"course: {error}\n".encode())
                raise error

    def _start(self, rank: RankEnd, words: list[str], environment: dict[str, str]) -> None:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            env=os.environ | environment, start_new_session=True,
        )  # fmt: skip
        self.running[process] = rank
        for pipe in (process.stdout, process.stderr):
            reader = threading.Thread(target=self._read, args=(rank, pipe is process.stdout, pipe), daemon=True)
            reader.start()
            self.readers.append(reader)

    def _read(self, rank: RankEnd, is_output: bool, pipe: IO[bytes]) -> None:
        for line in pipe:
            self.lines.put((rank, is_output, line))

    def _watch(self) -> None:
        """Follow the ranks until all have ended, one has failed, or the patience after a request has ended."""
        while self.running:
            with suppress(queue.Empty):
                self._take_line(*self.lines.get(timeout=0.2))
            for process in [process for process in self.running if process.poll() is not None]:
                self._take_end(process)
            self._show()
            now = time.monotonic()
            if now > self.failed_at + GRACE or now > self.asked_at + PATIENCE:
                return
            if self.request.cause and self.asked_at == float("inf"):
                # Before the first step, there is nothing to save.
                if not self.reached:
                    return
                self._ask()

    def _ask(self) -> None:
        """Ask all ranks to save a checkpoint after the current step, and to stop."""
        self.asked_at = time.monotonic()
        for process in self.running:
            assert process.stdin
            # The rank may just have ended.
            with suppress(OSError):
                process.stdin.write(f"{self.request.exit_code}\n".encode())
        self.bar.set_postfix_str(tr("saving a checkpoint; Ctrl-C again stops at once"))

    def _end(self) -> None:
        """End all processes that still run, and take their last lines."""
        for process in self.running:
            assert process.stdin
            # Ranks that are not children of this process end now.
            process.stdin.close()
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                if self.nodes.started_by == "srun":
                    process.terminate()
                    process.wait(SRUN_ENDS)
                # The group has also what a rank has started.
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for reader in self.readers:
            # Something that a rank has started may still hold the pipe.
            reader.join(1)
        while not self.lines.empty():
            self._take_line(*self.lines.get())
        self._show()

    def _take_end(self, process: "subprocess.Popen[bytes]") -> None:
        """Note how a process ended."""
        rank = self.running.pop(process)
        rank.code = process.returncode
        if rank is not self.srun:
            self.ended.append(rank)
        # 255 is ssh's own failure.
        if self.nodes.started_by == "ssh" and rank.code == 255:
            self.lost = self.lost or rank.node
        if rank.code:
            self._fail()

    def _take_line(self, rank: RankEnd, is_output: bool, raw: bytes) -> None:
        """Handle a line of a rank, or of `srun`, which puts the rank's number before its lines."""
        self._write(raw)
        line = raw.decode(errors="replace").rstrip("\n")
        if rank is self.srun and (labelled := LABEL.fullmatch(line)):
            rank, line = self.ranks[int(labelled[1])], labelled[2]
        if not is_output:
            rank.lines.append(line)
        if rank is self.srun:
            self._take_line_of_srun(line)
        if rank.number == 0 and is_output:
            with self.request.noting_closed_output():
                self.bar.clear()
                self.on_message(line)

    def _take_line_of_srun(self, line: str) -> None:
        if failed := NODE_FAILED.search(line):
            self.lost = self.lost or failed[1]
            self._fail()
        # When a rank fails, `srun` kills the others.
        if (failed := FAILED.search(line)) and (failed["code"] or not self.ended):
            ranks = [self.ranks[number] for number in numbers(failed["ranks"])]
            if not failed["code"] and len(ranks) == self.nodes.slots[failed["node"]]:
                self.lost = failed["node"]
            for rank in ranks:
                rank.code = int(failed["code"] or -signal.SIGKILL)
            self.ended += ranks
            self._fail()

    def _fail(self) -> None:
        self.failed_at = min(self.failed_at, time.monotonic())

    def _write(self, line: bytes) -> None:
        # If the disk is full, the ranks report that.
        with suppress(OSError):
            self.output.write(line)

    def _show(self) -> None:
        """Show the step, the loss and the speed of the last line in the log."""
        entries = log.tail(self.folder)
        if not entries or entries[-1]["step"] == self.reached:
            # While the ranks start, the bar's clock shows that it waits.
            self.bar.update(0)
            return
        self.bar.set_description(tr("training {task}", task=self.run.title()), refresh=False)
        for entry in entries:
            if entry["kind"] == "train":
                summary = tr("loss {loss:.3f}, {tokens_per_second:.0f} tokens/s", **entry)
                self.bar.set_postfix_str(summary, refresh=False)
        self.bar.update(entries[-1]["step"] - self.reached)
        self.reached = entries[-1]["step"]

    def _judge(self) -> CourseError | None:
        """Return the error that ends the run, by its first cause and not what followed from it; None if all is well."""
        failed = [rank for rank in self.ended if rank.code]
        if not failed and not self.running and not self.srun.code:
            return None
        how_on, output = how_to_go_on(self.folder), f"all output is in {self.folder / OUTPUT}"
        # A checkpoint may have been saved after the last line of the log.
        whole = checkpoint.whole_checkpoints(self.folder)
        step = max(self.reached, checkpoint.step_of(whole[0]) if whole else 0)
        if self.request.cause:
            return self.request.error(step, self.steps, self.folder, output)
        for rank in failed:
            if rank.code in (1, 2) and rank.report:
                kind = UsageError if rank.code == 2 else CourseError
                return kind(rank.report if rank.node == self.nodes.first else f"{rank.node}: {rank.report}")
        # Somebody else has asked the ranks to stop, such as Slurm by a signal to all processes of a step.
        if failed and failed[0].code in CAUSES and failed[0].report:
            return StopRequest(failed[0].code).error(step, self.steps, self.folder, output)
        if short := [rank for rank in failed if rank.lacks_memory]:
            return out_of_memory(self.run.settings, self.nodes.ranks, short[0].number, step, output)
        return CourseError(f"{self._problem(failed)}; {at_step(step, self.steps)}, {how_on}; {output}")

    def _problem(self, failed: list[RankEnd]) -> str:
        """Return what went wrong, given the ranks that failed by themselves."""
        when = "" if self.reached else " before training began"
        if self.lost and self.reached:
            return f"{self.lost} was lost (the machine, its network, or a killed process); the others were stopped"
        if not failed:
            return f"srun ended with code {self.srun.code}{when}: {self.srun.last_line}"
        # A rank that misses another one fails because the other has failed.
        causes = [rank for rank in failed if not rank.misses_another] or failed
        cause = next((rank for rank in causes if rank.exception), causes[0])
        if cause.exception:
            return f"{self._name([cause])} failed: {cause.exception}"
        if cause.is_killed:
            killed = self._name([rank for rank in causes if rank.is_killed])
            how = "ended without an error message (killed, or the machine ran out of memory)"
            return f"{killed} {how}; the others were stopped"
        return f"{self._name([cause])} ended with code {cause.code}{when}: {cause.last_line}"

    def _name(self, ranks: list[RankEnd]) -> str:
        """Return the numbers of ranks, and their nodes if there are several."""
        numbers = f"rank {', '.join(str(rank.number) for rank in ranks)}"
        nodes = ", ".join(dict.fromkeys(rank.node for rank in ranks))
        return f"{numbers} on {nodes}" if len(self.nodes.slots) > 1 else numbers


def numbers(text: str) -> list[int]:
    """Return the numbers in a text such as 0-2,5."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
