"""What the `course` processes of a run tell each other if each node runs one (--node-rank, or `srun`).

The first node leads. It keeps a TCPStore of torch, in which each node counts its heartbeats and its lines: messages in
JSON and, from the other nodes, what their ranks print. So the first node sees the output of all ranks, as with ssh.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from course_lib.errors import CourseError, UsageError, one_line
from course_lib.language.words import tr
from course_lib.training import events
from course_lib.training.launcher_process import interruption
from course_lib.training.nodes import Nodes

# seconds between two looks at the store, and seconds after which a node without a heartbeat is lost
PAUSE, LOST = 0.2, 20.0
# seconds for the other nodes to read how the run ended
FAREWELL = 5.0


class Lost(Exception):
    """A node has no heartbeat any more, or the first node's store is gone."""


class Link:
    """This node's side of the store. Raises CourseError if the store cannot be opened or reached in `seconds`."""

    def __init__(self, nodes: Nodes, seconds: float) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        host, port = nodes.address
        self.nodes, self.place, wait = nodes, f"{host}:{port}", timedelta(seconds=seconds)
        try:
            self.store: Any = TCPStore(host, port, is_master=not nodes.rank, wait_for_workers=False, timeout=wait)
        except (RuntimeError, ValueError) as error:
            if nodes.rank:
                raise CourseError(
                    f"{nodes.names[0]}: no answer at {self.place} within launch.node_wait = {seconds:g} s; "
                    "run the same command there"
                ) from error
            raise UsageError(
                f"launch.master_addr, launch.master_port: {self.place} cannot be opened on {nodes.name}, the first "
                f"node: {one_line(error)}"
            ) from error
        self.store.set_timeout(timedelta(seconds=LOST))
        # node → number of its lines that were read; node → its heartbeats, and when there was a new one
        self.lines: dict[int, int] = {}
        self.beats: dict[int, tuple[int, float]] = {}
        self.closed = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        with suppress(RuntimeError):
            while not self.closed.wait(PAUSE):
                self.store.add(f"{self.nodes.rank} beats", 1)

    def send(self, line: str) -> None:
        """Write a line for the other side. That the first node is gone is noticed where its lines are read."""
        with suppress(RuntimeError):
            number = self.store.add(f"{self.nodes.rank} lines", 1)
            self.store.set(f"{self.nodes.rank} line {number}", line)

    def tell(self, **message: Any) -> None:
        """Write a message for the other side."""
        self.send(json.dumps(message))

    def next_line(self, node: int) -> str | None:
        """Return the next line of a node, or None if there is no new one. Raises Lost."""
        try:
            if self.store.add(f"{node} lines", 0) > self.lines.get(node, 0):
                self.lines[node] = self.lines.get(node, 0) + 1
                return str(self.store.get(f"{node} line {self.lines[node]}").decode())
            beats = self.store.add(f"{node} beats", 0)
        # torch has several classes for a store whose process is gone.
        except RuntimeError as error:
            raise Lost from error
        before, since = self.beats.get(node, (0, 0.0))
        if beats != before:
            self.beats[node] = beats, time.monotonic()
        elif before and time.monotonic() - since > LOST:
            raise Lost
        return None

    def gather(self, seconds: float) -> None:
        """Wait on the first node for the others. Raises CourseError if one does not join, or has found a problem."""
        end = time.monotonic() + seconds
        for number, name in enumerate(self.nodes.names[1:], 1):
            while not (line := self.next_line(number)):
                if time.monotonic() > end:
                    raise CourseError(
                        f"{name}: did not join the run at {self.place} within launch.node_wait = {seconds:g} s; "
                        "run the same command there"
                    )
                time.sleep(PAUSE)
            hello = json.loads(line)
            if hello["problem"]:
                error = UsageError if hello["code"] == UsageError.exit_code else CourseError
                raise error(f"{name}: {hello['problem']}")
            if hello["slots"] != list(map(list, self.nodes.slots.items())):
                raise UsageError(
                    f"{name}: has other nodes or ranks than {self.nodes.name}; use the same launch settings and the "
                    "same number of GPUs on all nodes"
                )

    def forward(self, pipe: int) -> None:
        """Write the lines of the other nodes to a pipe in the background, and the event `lost` for one that is lost.

        The local launcher writes to the pipe too, so its reader gets to the end once all nodes are done.
        """
        threading.Thread(target=self._forward, args=(os.dup(pipe),), daemon=True).start()

    def _forward(self, pipe: int) -> None:
        others = set(range(1, len(self.nodes.slots)))
        with open(pipe, "wb", buffering=0) as target, suppress(OSError):
            while others:
                time.sleep(PAUSE)
                for number in list(others):
                    try:
                        while line := self.next_line(number):
                            target.write(line.encode())
                            if (event := events.parse(line)) and event["kind"] == "done":
                                others.discard(number)
                    except Lost:
                        target.write(events.line("lost", node=number).encode())
                        others.discard(number)

    def hear(self) -> dict[str, Any]:
        """Wait for a message of the first node. Raises CourseError if that node is lost or has ended the run badly."""
        try:
            while not (line := self.next_line(0)):
                time.sleep(PAUSE)
        except Lost:
            raise CourseError(f"{self.nodes.names[0]} was lost; --resume continues from the last checkpoint") from None
        message: dict[str, Any] = json.loads(line)
        if "end" in message:
            with suppress(RuntimeError):
                self.store.add("left", 1)
        if message.get("end"):
            error = CourseError(message["end"])
            error.exit_code = message["code"]
            raise error
        return message


@contextmanager
def lead(nodes: Nodes, seconds: float, on_message: Callable[[str], None]) -> Iterator[Link | None]:
    """Open the store, and tell the others how the run ended; yields None if this process starts all ranks."""
    if nodes.rank is None or len(nodes.slots) == 1:
        yield None
        return
    link, others = Link(nodes, seconds), len(nodes.slots) - 1
    on_message(
        tr("{name} at {address} waits for {others} other nodes", name=nodes.name, address=link.place, others=others)
    )
    end: dict[str, Any] = {"end": "", "code": 0}
    try:
        yield link
    except BaseException as error:
        if isinstance(error, CourseError):
            end = {"end": str(error), "code": error.exit_code}
        else:
            cause, code = interruption(error) or (f"{type(error).__name__}: {error}", 1)
            end = {"end": f"{cause} on {nodes.name}", "code": code}
        raise
    finally:
        link.tell(**end)
        last = time.monotonic() + FAREWELL
        while link.store.add("left", 0) < others and time.monotonic() < last:
            time.sleep(PAUSE)
        link.closed.set()


def join(nodes: Nodes, seconds: float, problem: CourseError | None) -> Link:
    """Join the run of the first node, and tell it what this node has found wrong with the run. Raises `problem`."""
    link = Link(nodes, seconds)
    link.tell(slots=list(nodes.slots.items()), problem=str(problem or ""), code=problem.exit_code if problem else 0)
    if problem:
        raise problem
    return link
