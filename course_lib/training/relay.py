"""A node that follows: it starts the launcher for its ranks and sends what they print to the first node."""

import contextlib
import subprocess
from pathlib import Path

from course_lib.training import checkpoint, events, launcher_process
from course_lib.training.node_link import Follower


def relay(follower: Follower, command: list[str], environment: dict[str, str], folder: Path) -> None:
    """Run the launcher on this node until the first node has ended the run.

    An interruption of this node interrupts the run: the first node is told, and lets all ranks save a checkpoint. A
    second Ctrl-C ends this node at once.

    Raises:
        CourseError: with the first node's message and exit code, if the run does not end well, or if the first node is
            lost.
    """
    with launcher_process.interruptible():
        # A rank reports a run folder that this node does not see.
        start_in = folder if folder.is_dir() else Path("/")
        process = launcher_process.start(command, environment, start_in, subprocess.PIPE)
        watching = follower.watch(lambda: launcher_process.end(process))
        try:
            try:
                _send(follower, process)
            except BaseException as error:
                cause = launcher_process.interruption(error)
                if cause is None:
                    raise
                launcher_process.ignore_stop_request()
                told = events.line("interrupted", cause=cause[0], code=cause[1], node=follower.nodes.rank)
                with contextlib.suppress(OSError):
                    follower.connection.send(told.encode())
                _send(follower, process)
            process.wait()
            with contextlib.suppress(OSError):
                follower.connection.send(events.line("done", code=process.returncode).encode())
            watching.join()
        finally:
            launcher_process.end(process)
    whole = checkpoint.whole_checkpoints(folder)
    back = f"--resume continues from {whole[0].name}" if whole else "no checkpoint was saved yet"
    follower.conclude(f"during the run; {back}")


def _send(follower: Follower, process: launcher_process.Launcher) -> None:
    """Send the output of the launcher and the ranks until all of them have exited."""
    assert process.stdout
    for raw in process.stdout:
        # The ranks are stopped if the first node is gone.
        with contextlib.suppress(OSError):
            follower.connection.send(raw)
