"""Speed comparison of several engines with the same model, prompts and number of greedily decoded tokens.

The engines take turns on one thread. A writer is a function that takes sequences of ids and a number of tokens, and
returns that many new ids for each sequence. It never generates the end-of-text token. Times are for the whole call,
including the prompts.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from course_lib.checkpoints.compute import one_thread
from course_lib.checkpoints.quiet import quiet
from course_lib.errors import CourseError
from course_lib.generation.config import GenerateConfig

Rows = Sequence[Sequence[int]]
Writer = Callable[[Rows, int], list[list[int]]]


@dataclass(frozen=True)
class Speed:
    """The times for one engine and one batch size."""

    engine: str
    batch: int  # number of sequences
    new: int  # new tokens per sequence
    seconds: tuple[float, ...]  # one per round

    @property
    def latency(self) -> float:
        """Median duration of a call [s], including the processing of the prompts."""
        return statistics.median(self.seconds)

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second for the whole batch, at the median time."""
        return self.batch * self.new / self.latency

    def times(self, other: "Speed") -> float:
        """Return how many times as fast this engine is as `other`.

        The value is the median, over all rounds, of the other engine's time divided by this engine's.
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
    """Measure every writer at each batch size, after one warm-up round.

    A batch consists of the first prompts. PyTorch is limited to one thread during the measurement.

    Args:
        writers: the writers by name.
        prompts: sequences of ids; at least as many as the largest batch size.
        batches: batch sizes [sequences].
        new: number of new tokens per sequence.
        rounds: measured calls per writer and batch size.
        clock: time source [s]. On a busy machine, `time.process_time` counts only the CPU time used by this process.

    Raises:
        CourseError: if a writer does not return `new` tokens for each sequence.
    """
    speeds = list[Speed]()
    with one_thread():
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
    """Return a writer that calls the transformers `generate` method."""

    def write(rows: Rows, new: int) -> list[list[int]]:
        longest = max(map(len, rows))
        padded = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], device=model.device)
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=model.device)
        end = model.generation_config.eos_token_id
        options = {"max_new_tokens": new, "min_new_tokens": new, "eos_token_id": end, "pad_token_id": end}
        settings = GenerationConfig(do_sample=False, **options)
        with torch.inference_mode(), quiet():
            texts: list[list[int]] = model.generate(padded, attention_mask=mask, generation_config=settings).tolist()
        return [row[longest:] for row in texts]

    return write


def ct2(folder: Path) -> Writer:
    """Return a writer for a folder written by `course ct2 export`."""
    from course_lib.serving.ct2_generate import Ct2Generator

    generator = Ct2Generator(folder, threads=1)

    def write(rows: Rows, new: int) -> list[list[int]]:
        settings = GenerateConfig(strategy="greedy", max_new_tokens=new, min_new_tokens=new)
        return [texts[0] for texts in generator.continue_ids(rows, settings)]

    return write


def reader(loaded: Any, task: int | None = None) -> Writer:
    """Return a writer that runs a model from reader.load with engine.py, with or without a task's prefix."""
    from course_lib.serving.engine import Engine
    from course_lib.serving.request import Row

    engine = Engine(loaded)

    def write(rows: Rows, new: int) -> list[list[int]]:
        common = Row((), new, task=task, top_k=1, bad_words=((engine.end_id,),), end_id=engine.vocabulary)
        asked = [replace(common, ids=tuple(row)) for row in rows]
        return [answer.ids[len(row) :] for answer, row in zip(engine.run(asked), rows, strict=True)]

    return write
