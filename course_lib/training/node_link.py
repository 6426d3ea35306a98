"""The TCP connections between the `course` processes of a run that each node starts (--node-rank, or `srun`).

The first node leads: it accepts one connection from each other node, checks the run, writes the run folder, and tells
the others to start. They send it every line that their ranks print, so it sees the output of all ranks, as with ssh. A
node that is lost closes its connection; if it loses its power or network, TCP keep-alive closes the connection after
about a minute. Messages are JSON objects, one per line; anybody who can reach the port can send them, as with
PyTorch's own rendezvous, so the nodes need a network of their own.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from course_lib.errors import CourseError, UsageError
from course_lib.language.words import tr
from course_lib.training import events
from course_lib.training.launcher_process import interruption
from course_lib.training.nodes import Nodes

# option → seconds, or number of unanswered probes: the connection closes 15 + 3 · 15 s after the other machine is gone
KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
# seconds for the first message of a connection; a port scanner sends none
GREETING = 20.0
# seconds between two attempts to connect
PAUSE = 0.2


class _Connection:
    """One connection, read and written line by line."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(None)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if number := getattr(socket, name, None):
                connected.setsockopt(socket.IPPROTO_TCP, number, value)
        self.socket = connected
        self.lines: BinaryIO = connected.makefile("rb")

    def send(self, line: bytes) -> None:
        """Send a line. Raises OSError if the other side is gone."""
        self.socket.sendall(line)

    def tell(self, **message: Any) -> None:
        """Send a message. Raises OSError if the other side is gone."""
        self.send(json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, Any] | None:
        """Return the next message, or None if the other side is gone or sends no JSON object."""
        with suppress(OSError, ValueError):
            message = json.loads(self.lines.readline())
            return message if isinstance(message, dict) else None
        return None

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.lines.close()
        self.socket.close()


class Leader:
    """The first node's connections to the other nodes; none in a run whose ranks one `course` starts."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        # number of the node → its connection
        self.others: dict[int, _Connection] = {}

    def accept(self, listener: socket.socket, seconds: float) -> None:
        """Wait until every other node has connected. Raises CourseError if one has not in time."""
        end = time.monotonic() + seconds
        while missing := sorted(set(range(1, len(self.nodes.slots))) - self.others.keys()):
            names = ", ".join(self.nodes.names[number] for number in missing)
            listener.settimeout(max(end - time.monotonic(), 0.001))
            try:
                connected, _ = listener.accept()
            except TimeoutError:
                host, port = self.nodes.address
                raise CourseError(
                    f"{names}: did not join the run at {host}:{port} within launch.node_wait = {seconds:g} s; "
                    "run the same command there"
                ) from None
            self._greet(connected)

    def _greet(self, connected: socket.socket) -> None:
        other = _Connection(connected)
        connected.settimeout(GREETING)
        hello = other.hear() or {}
        connected.settimeout(None)
        number, slots, own = hello.get("node"), hello.get("slots"), self.nodes.slots
        # Not one of our nodes.
        if not isinstance(number, int) or not isinstance(slots, dict):
            other.close()
            return
        if list(slots.items()) != list(own.items()):
            problem = f"node {number} has the nodes {_shown(slots)}, but {self.nodes.name} has {_shown(own)}"
            other.tell(end=problem, code=UsageError.exit_code)
            other.close()
            raise UsageError(f"{problem}; use the same launch settings and the same number of GPUs on all nodes")
        if number in self.others or not 0 < number < len(own):
            other.tell(end=f"launch.node_rank: {number} has joined already", code=UsageError.exit_code)
            other.close()
            return
        self.others[number] = other

    def gather(self) -> None:
        """Wait until every other node has checked its part. Raises CourseError if one has found a problem."""
        for number, other in self.others.items():
            name = self.nodes.names[number]
            said = other.hear()
            if said is None:
                raise CourseError(f"{name} was lost before training began")
            if "problem" in said:
                error = UsageError if said["code"] == UsageError.exit_code else CourseError
                raise error(f"{name}: {said['problem']}")

    def tell(self, **message: Any) -> None:
        """Send a message to all other nodes. A node that is gone is noticed where its lines are read."""
        for other in self.others.values():
            with suppress(OSError):
                other.tell(**message)

    def forward(self, pipe: int) -> None:
        """Write the lines of all other nodes to a pipe, in the background.

        The local launcher writes to the pipe too, so its reader gets to the end once all nodes are done. If a node is
        lost, the event `lost` is written.
        """
        for number, other in self.others.items():
            threading.Thread(target=_forward, args=(number, other, os.dup(pipe)), daemon=True).start()


@contextmanager
def lead(nodes: Nodes, seconds: float, say: Callable[[str], None]) -> Iterator[Leader]:
    """Connect the first node with the others, and tell them at the end of the block how it ended.

    Raises UsageError if the address is not one of this machine, or CourseError if a node does not join in `seconds`.
    """
    leader = Leader(nodes)
    if nodes.rank is None or not nodes.several:
        yield leader
        return
    host, port = nodes.address
    try:
        listener = socket.create_server((host, port))
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"launch.master_addr, launch.master_port: {host}:{port} cannot be opened on {nodes.name}, the first node: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from None
    number = len(nodes.slots)
    say(
        tr(
            "{name} at {address} waits for {missing} more of {all} nodes",
            name=nodes.name,
            address=f"{host}:{port}",
            missing=number - 1,
            all=number,
        )
    )
    try:
        with listener:
            leader.accept(listener, seconds)
        yield leader
    except BaseException as error:
        if isinstance(error, CourseError):
            leader.tell(end=str(error), code=error.exit_code)
        else:
            cause, code = interruption(error) or (f"{type(error).__name__}: {error}", 1)
            leader.tell(end=f"{cause} on {nodes.name}", code=code)
        raise
    else:
        leader.tell(end="", code=0)
    finally:
        for other in leader.others.values():
            other.close()


def _forward(number: int, other: _Connection, pipe: int) -> None:
    done = False
    with open(pipe, "wb", buffering=0) as target, suppress(OSError, ValueError):
        with suppress(OSError):
            for line in other.lines:
                target.write(line)
                event = events.parse(line.decode(errors="replace"))
                if event and event["kind"] == "done":
                    done = True
                    break
        if not done:
            target.write(events.line("lost", node=number).encode())


class Follower:
    """A connection of another node to the first one."""

    def __init__(self, nodes: Nodes, connection: _Connection) -> None:
        self.nodes, self.connection = nodes, connection
        # the message with which the first node ended the run; None if that node was lost
        self.verdict: dict[str, Any] | None = None

    def start(self) -> dict[str, Any] | None:
        """Wait for the word to start, and return it, or None if the run is complete already.

        Raises CourseError if the first node has ended the run or is lost.
        """
        said = self.connection.hear()
        if said is not None and "end" not in said:
            return said
        self.verdict = said
        self.conclude("before training began")
        return None

    def watch(self, end: Callable[[], None]) -> threading.Thread:
        """Wait in the background for the end of the run; call `end`, which must stop the local ranks, when it comes."""

        def wait() -> None:
            said: dict[str, Any] | None = {"stop": True}
            while said and "end" not in said:
                said = self.connection.hear()
                end()
            self.verdict = said

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        return thread

    def conclude(self, at: str) -> None:
        """Raise CourseError if the run did not end well; `at` says where it was, if the first node cannot."""
        if self.verdict is None:
            raise CourseError(f"{self.nodes.names[0]} was lost {at}")
        if self.verdict["end"]:
            error = CourseError(self.verdict["end"])
            error.exit_code = self.verdict["code"]
            raise error


@contextmanager
def join(nodes: Nodes, seconds: float, say: Callable[[str], None], check: Callable[[], None]) -> Iterator[Follower]:
    """Connect this node with the first one, check this node, and report the result.

    Raises UsageError if launch.master_addr is unknown, CourseError if nobody answers there in `seconds`, and what
    `check` raises.
    """
    host, port = nodes.address
    end, told = time.monotonic() + seconds, False
    while True:
        try:
            connected = socket.create_connection((host, port), timeout=GREETING)
            break
        except socket.gaierror as error:
            raise UsageError(f"launch.master_addr: {host!r} is unknown on {nodes.name}: {error.strerror}") from None
        except OSError as error:
            if time.monotonic() > end:
                raise CourseError(
                    f"{nodes.names[0]}: no answer at {host}:{port} within launch.node_wait = {seconds:g} s: "
                    f"{error.strerror or error}; run the same command there"
                ) from None
        if not told:
            say(
                tr(
                    "{name} waits for {first} at {address}",
                    name=nodes.name,
                    first=nodes.names[0],
                    address=f"{host}:{port}",
                )
            )
            told = True
        time.sleep(PAUSE)
    connection = _Connection(connected)
    try:
        with suppress(OSError):
            connection.tell(node=nodes.rank, slots=nodes.slots)
        try:
            check()
        except CourseError as error:
            with suppress(OSError):
                connection.tell(problem=str(error), code=error.exit_code)
            raise
        with suppress(OSError):
            connection.tell(ready=True)
        yield Follower(nodes, connection)
    finally:
        connection.close()


def _shown(slots: dict[str, int]) -> str:
    return ", ".join(f"{name} slots={count}" for name, count in slots.items())
