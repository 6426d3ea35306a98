"""What the parts of the GPU benchmark share: the folder they run in, the card's rates, and a measured training run.

A part is one process, which gpu_all.py starts. It returns plain values for its JSON file, or raises Late.
"""

import gc
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import CourseError
from course_lib.models.config import ModelConfig
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training import log
from course_lib.training.loop import train
from course_lib.training.planner import plan
from course_lib.training.run import Run

GB = 1e9
SHARE = 0.92  # of the card that a plan may take: the planner need not be exact for its batch to fit
Values = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """Where a part runs: on the card with the real shapes, or on CPU with tiny ones, to see that the path works."""

    folder: Path  # for this part alone, removed after it
    tiny: bool

    @property
    def device(self) -> str:
        return "cpu" if self.tiny else "cuda"

    @property
    def usable_memory(self) -> float:
        """Memory of the card that a run may take [bytes]."""
        return float("inf") if self.tiny else SHARE * torch.cuda.mem_get_info()[1]

    @property
    def every(self) -> int:
        """Steps between two log entries."""
        return 1 if self.tiny else 5

    @property
    def entries(self) -> int:
        """Log entries of a measured run, of which the first two are warm-up."""
        return 3 if self.tiny else 8

    def precision(self, wanted: str) -> str:
        """`wanted`, or what CPU ranks have instead of fp16."""
        return "bf16" if self.tiny and wanted == "fp16" else wanted


@dataclass(frozen=True)
class Part:
    """A part of the benchmark; its process is ended after `seconds`, its start included."""

    name: str
    seconds: int
    run: Callable[[Bench], Values]


def neox_shape(bench: Bench) -> ModelConfig:
    """The shape of rinna's 3.6B model, or a tiny one."""
    sizes = {"vocab_size": 1000, "hidden_size": 64, "num_layers": 2, "num_attention_heads": 4, "ffn_hidden_size": 256}
    tiny = [f"model.{name}={size}" for name, size in (sizes | {"max_position_embeddings": 128}).items()]
    tiny.append("data.seq_length=128")
    return config.load(PretrainConfig, "gpt-neox-3.6b.yaml", tiny if bench.tiny else []).model


class Enough(Exception):
    """Ends a run that has been measured."""


class Late(Exception):
    """Ends a part for which there is no more time."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises Late in the block after some seconds."""

    def late(*_: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def matrix_rate(device: str, dtype: str) -> float:
    """Products of large random matrices [FLOP/s]: the median of ten turns of twenty, after two for warming up."""
    size = 256 if device == "cpu" else 8192
    a, b = (torch.randn(size, size, device=device, dtype=TORCH[dtype]) for _ in range(2))  # type: ignore[index]
    times = []
    for _ in range(12):
        started = perf_counter()
        for _ in range(20):
            a @ b
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(perf_counter() - started)
    del a, b
    if device == "cuda":
        torch.cuda.empty_cache()
    return 20 * 2 * size**3 / median(times[2:])


@contextmanager
def held_on_device() -> Iterator[Callable[[], float]]:
    """Watches how much of the card is in use, caches and CUDA's context included; gives the peak [bytes].

    No other process may use the card.
    """
    if not torch.cuda.is_available():
        yield lambda: 0.0
        return
    used_bytes, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            free, all_of_it = torch.cuda.mem_get_info()
            used_bytes.append(all_of_it - free)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: float(max(used_bytes))
    finally:
        done.set()
        watcher.join()


def batches(bench: Bench, run: Callable[[int, str], Run]) -> Iterator[Callable[[], Run]]:
    """Yields what makes a run of a micro batch, the largest first; blocks are recomputed where 4 does not fit."""
    for recompute, sizes in {"none": (32, 16, 8, 4), "full": (32, 16, 8, 4, 2, 1)}.items():
        for micro in sizes:
            yield partial(run, 8 if bench.tiny else micro, recompute)


def largest(bench: Bench, choices: Iterable[Callable[[], Run]]) -> tuple[Run, Values]:
    """Measures the first choice that the planner lets on the card.

    One that runs out of memory all the same is noted, and the next is used. On CPU the first choice is used. Raises
    CourseError if none fits.
    """
    refused: list[str] = []
    for choice in choices:
        run = choice()
        if plan(run.settings, 1).total > bench.usable_memory:
            continue
        try:
            return run, measure(bench, run) | {"out_of_memory_before": refused}
        except CourseError as error:
            if not isinstance(error.__cause__, torch.OutOfMemoryError):
                raise
            print(error, flush=True)
            refused.append(str(run.settings.engine.output_dir.name))
        # The error has referred to the run's tensors until here.
        gc.collect()
        torch.cuda.empty_cache()
    raise CourseError(f"no batch fits on this card; out of memory: {', '.join(refused) or 'none tried'}")


def measure(bench: Bench, run: Run) -> Values:
    """Trains for a few log entries in this process, and returns speed and memory, warm-up left out.

    The run is ended after its last measured step, so it saves nothing. Steps that it makes until then do not count.
    """
    settings, seen = run.settings, 0
    rate = matrix_rate(bench.device, settings.precision.dtype)

    def say(line: str) -> None:
        nonlocal seen
        seen += "global step" in line
        print(line, flush=True)
        if seen == bench.entries:
            raise Enough

    with held_on_device() as peak, suppress(Enough):
        train(run, on_message=say)
    entries, planned = log.read(settings.engine.output_dir)[: bench.entries], plan(settings, 1)
    speed = median(entry["tokens_per_second"] for entry in entries[2:])
    return {
        "dtype": settings.precision.dtype,
        "micro_batch": settings.batch.micro_size,
        "recompute": settings.model.recompute,
        "compile": settings.engine.compile,
        "tokens_per_second": speed,
        "matrix_rate": rate,
        "share": speed * settings.sizes().flops_per_token / rate,
        "allocated": entries[-1]["memory"],
        "held": peak(),
        "planned": planned.total,
        "plan": planned.parts,
        "losses": [entry["loss"] for entry in entries],
    } | {key: entries[-1][key] for key in ("loss_scale", "skipped_steps") if key in entries[-1]}


def common_changes(bench: Bench, name: str, dtype: str) -> Values:
    """The settings of a run that is measured and saves nothing, by dotted key."""
    return {
        "precision.dtype": bench.precision(dtype), "zero.offload_optimizer": "false",
        "launch.ranks": 1, "engine.max_steps": 2 * bench.every * bench.entries, "engine.num_train_epochs": "null",
        "engine.save_steps": 1_000_000, "engine.logging_freq": bench.every, "engine.eval_freq": 0,
        "engine.tracking": "[]",
        "engine.output_dir": bench.folder / name, "launch.device": "cpu" if bench.tiny else "auto",
    }  # fmt: skip


def overrides(changes: Values) -> list[str]:
    """The changes as words of a command line."""
    return [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in changes.items()]


def synchronize(device: str) -> None:
    """Waits for the card, if there is one."""
    if device == "cuda":
        torch.cuda.synchronize()
