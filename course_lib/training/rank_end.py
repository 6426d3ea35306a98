"""How a rank ended: its exit code, and what its last lines say."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.training import log, planner
from course_lib.training.interruptions import how_to_go_on
from course_lib.training.ranks import started_as_rank
from course_lib.training.settings import RunConfig

# words in the error of a rank that has no memory, and of one whose peer has exited
MEMORY = ("OutOfMemory", "out of memory", "can't allocate memory", "ALLOC_FAILED", "MemoryError")
LOST = (
    "Connection closed by peer", "Connection reset", "NCCL", "Gloo", "DistBackend", "DistNetwork", "DistStore",
    "Broken pipe",
)  # fmt: skip
TRACEBACK = "Traceback (most recent call last):"
REPORT = "course: "


@dataclass
class RankEnd:
    """A rank that watch.py watches, and what it says at its end."""

    number: int
    node: str
    # exit code, negative for the signal that killed it; None as long as it runs
    code: int | None = None
    # its last lines on standard error
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=500))

    @property
    def report(self) -> str:
        """The line with which `course` reports a user's mistake, bad data or an interruption, or ""."""
        reports = [line for line in self.lines if line.startswith(REPORT)]
        return reports[-1].removeprefix(REPORT) if reports else ""

    @property
    def exception(self) -> str:
        """The exception at the end of the last traceback, as one line, or ""."""
        lines = list(self.lines)
        if TRACEBACK not in lines:
            return ""
        while TRACEBACK in lines:
            lines = lines[lines.index(TRACEBACK) + 1 :]
        # The lines of the calls are indented.
        while lines and (lines[0].startswith(" ") or not lines[0]):
            lines.pop(0)
        return " ".join(" ".join(lines).split())[:400]

    @property
    def is_killed(self) -> bool:
        """Whether a signal has ended it, which the shell of another node reports as 128 + the signal's number."""
        return self.code is not None and (self.code < 0 or 128 < self.code < 192) and not self.report

    @property
    def lacks_memory(self) -> bool:
        """Whether it had no memory left."""
        return names_memory(self.exception)

    @property
    def misses_another(self) -> bool:
        """Whether it failed because another rank had ended."""
        return any(words in self.exception for words in LOST)

    @property
    def last_line(self) -> str:
        """The last line that is not empty."""
        return next((line.strip()[:300] for line in reversed(self.lines) if line.strip()), "no output")


def names_memory(exception: str) -> bool:
    """Return whether an exception, as text, says that memory was short."""
    return any(words in exception for words in MEMORY)


def out_of_memory(settings: Any, ranks: int, rank: int, step: int, *more: str) -> CourseError:
    """Return the error of a run that had too little memory, with the settings that need less."""
    advice = f"out of memory on rank {rank} at step {step}: {planner.advice(settings, ranks)}"
    how_on = how_to_go_on(settings.engine.output_dir)
    change = "the micro-batch, recomputation, the ZeRO stage and the number of GPUs may change on --resume"
    return CourseError("; ".join((f"{advice} ({change})", how_on, *more)))


@contextmanager
def advising_on_memory(settings: RunConfig) -> Iterator[None]:
    """Raise CourseError with advice if the training in the block, on one rank, has too little memory.

    Of several ranks, watch.py advises. A kind of run without sizes for the planner raises what PyTorch raises.
    """
    folder: Path = settings.engine.output_dir
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        is_planned = type(settings).sizes is not RunConfig.sizes
        if started_as_rank() or not is_planned or not names_memory(f"{type(error).__name__}: {error}"):
            raise
        entries = log.tail(folder)
        step = entries[-1]["step"] if entries else 0
        raise out_of_memory(settings, 1, 0, step) from error
