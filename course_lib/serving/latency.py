"""Measures the speed of several engines with the same model, prompts and number of greedy tokens.

The engines take turns on one thread. A writer is a function that takes rows of ids and a number of tokens, and
returns that many new ids for each row; it never chooses the end of text. Times are of the whole call, prompt included.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from course_lib.checkpoints.quiet import quiet
from course_lib.errors import CourseError
from course_lib.generation.config import GenerateConfig

Rows = Sequence[Sequence[int]]
Writer = Callable[[Rows, int], list[list[int]]]


@dataclass(frozen=True)
class Speed:
    """The times of one engine for one batch size."""

    engine: str
    batch: int  # rows
    new: int  # tokens written per row
    seconds: tuple[float, ...]  # one per round

    @property
    def latency(self) -> float:
        """Median time of a call, from the prompts to the end of their texts [s]."""
        return statistics.median(self.seconds)

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of all rows together, at the median time."""
        return self.batch * self.new / self.latency

    def times(self, other: "Speed") -> float:
        """Return how many times as fast this engine is as `other`.

        The value is the median, over rounds, of the other engine's time divided by this engine's.
        """
        return statistics.median(theirs / mine for mine, theirs in zip(self.seconds, other.seconds, strict=True))


def measure(
    writers: Mapping[str, Writer],
    prompts: Rows,
    batches: Sequence[int] = (1, 8),
    new: int = 32,
    rounds: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Speed]:
    """Measure every writer with the first prompts of each batch size, after one warm-up round.

    PyTorch is limited to one thread during the measurement.

    Args:
        writers: the writers by name.
        prompts: rows of ids; at least as many as the largest batch.
        batches: batch sizes [rows].
        new: tokens that each row must get.
        rounds: measured calls per writer and batch size.
        clock: source of the time [s]. On a busy machine, `time.process_time` counts only what this process computed.

    Raises:
        CourseError: if a writer returns another number of tokens than `new`.
    """
    speeds = list[Speed]()
    with _one_thread():
        for batch in batches:
            seconds: dict[str, list[float]] = {name: [] for name in writers}
            for turn in range(rounds + 1):
                for name, write in writers.items():
                    started = clock()
                    written = write(prompts[:batch], new)
                    seconds[name] += [clock() - started] * bool(turn)
                    if [len(row) for row in written] != [new] * batch:
                        raise CourseError(f"{name}: wrote {[len(row) for row in written]} tokens, asked for {new} each")
            speeds += [Speed(name, batch, new, tuple(times)) for name, times in seconds.items()]
    return speeds


def hugging_face(model: Any) -> Writer:
    """Return a writer that calls `generate` of transformers."""

    def write(rows: Rows, new: int) -> list[list[int]]:
        longest = max(map(len, rows))
        padded = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        end = model.generation_config.eos_token_id
        settings = GenerationConfig(
            do_sample=False, max_new_tokens=new, min_new_tokens=new, eos_token_id=end, pad_token_id=end
        )
        with torch.inference_mode(), quiet():
            texts: list[list[int]] = model.generate(padded, attention_mask=mask, generation_config=settings).tolist()
        return [row[longest:] for row in texts]

    return write


def ct2(folder: Path) -> Writer:
    """Return a writer for a folder of `course ct2 export`."""
    from course_lib.serving.ct2_generate import Ct2Generator

    generator = Ct2Generator(folder, threads=1)

    def write(rows: Rows, new: int) -> list[list[int]]:
        settings = GenerateConfig(strategy="greedy", max_new_tokens=new, min_new_tokens=new)
        return [texts[0] for texts in generator.continue_ids(rows, settings)]

    return write


def reader(loaded: Any, task: int | None = None) -> Writer:
    """Return a writer that runs the result of reader.load with engine.py, with a task's prefix or with none."""
    from course_lib.serving.engine import Engine
    from course_lib.serving.request import Row

    engine = Engine(loaded)

    def write(rows: Rows, new: int) -> list[list[int]]:
        asked = [
            Row(tuple(row), new, task=task, top_k=1, bad_words=((engine.end_id,),), end_id=engine.vocabulary)
            for row in rows
        ]
        return [answer.ids[len(row) :] for answer, row in zip(engine.run(asked), rows, strict=True)]

    return write


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
