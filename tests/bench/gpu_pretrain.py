"""GPT-2 124M, 345M and XL on one GPU through `course pretrain`'s own path: tokens/s, FLOPs utilisation, memory against the planner's.

    python -m tests.bench.gpu_pretrain [-o gpu_pretrain.md] [--minutes 7.5] [--cpu]

bf16, ZeRO-2, sequences of 1024 random tokens, the largest power of two up to 32 as micro batch that the planner lets on the card, no
accumulation. Each run is started by launch.train and ended after its last measured step, so nothing is saved. Utilisation counts useful
FLOPs (planner.flops_per_token) against bf16 matrix products measured first on the same card. Asked for: half of that rate for XL.
Runs stand in order of weight; what the minutes do not allow is left out. `--cpu` takes the same path with a tiny shape, to see that it works.
"""

import argparse
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import torch
from course_lib import config
from course_lib.errors import CourseError
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.pretrain.indexed import IndexedWriter
from course_lib.subword.folder import Preparation, save
from course_lib.training import log
from course_lib.training.launch import train
from course_lib.training.planner import plan
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

CONFIGS = Path(config.__file__).parent / "configs"
GB = 1e9
ENTRIES = 300  # of the stand-in tokenizer
MARGIN = 2 * GB  # of the card: what others hold there
HEAD = (
    "| model | dropout | compile | micro batch | recompute | tokens/s | of the matrix rate | peak allocated, GB | held on the card, GB | planner, GB |\n"
    "|---|---|---|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True)
class Job:
    name: str
    dropout: float
    compile: bool


JOBS = [
    Job("gpt2-xl", 0.0, False), Job("gpt2-345m", 0.0, False), Job("gpt2-125m", 0.0, False), Job("gpt2-xl", 0.1, False),
    Job("gpt2-125m", 0.0, True), Job("gpt2-xl", 0.0, True), Job("gpt2-345m", 0.0, True),
]  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """What all runs share."""

    folder: Path
    cpu: bool
    rate: float  # of bf16 matrix products [FLOP/s]
    room: float  # memory of the device [bytes]
    every: int  # steps in a log entry
    entries: int  # of which the first two are warm-up

    def settings(self, job: Job, micro: int, recompute: str) -> PretrainConfig:
        length = 128 if self.cpu else 1024
        run = self.folder / f"{job.name}-{job.dropout}-{job.compile}-{micro}"
        changes: dict[str, Any] = {
            "data.input": f"[{self.folder}/tokens]", "data.tokenizer": self.folder / "tokenizer", "data.seq_length": length,
            "model.max_position_embeddings": length, "model.recompute": recompute, "model.hidden_dropout_prob": job.dropout,
            "model.attention_probs_dropout_prob": job.dropout, "batch.global_size": "null", "batch.local_size": micro,
            "batch.micro_size": micro, "optimizer.lr.decay_steps": "null", "precision.dtype": "bf16", "zero.stage": 2,
            "zero.offload_optimizer": "false", "data.train_tokens": "null", "engine.num_train_epochs": "null",
            "engine.max_steps": 2 * self.every * self.entries, "engine.save_steps": 1_000_000, "engine.logging_freq": self.every,
            "engine.eval_freq": 0, "engine.test_iters": 0, "engine.tracking": "[]", "engine.output_dir": run,
            "engine.compile": str(job.compile).lower(), "engine.peak_tflops": self.rate / 1e12, "launch.ranks": 1,
        }  # fmt: skip
        return config.load(
            PretrainConfig, CONFIGS / f"{job.name}.yaml", [f"{key}={value}" for key, value in changes.items()]
        )

    def choices(self, job: Job) -> Iterator[PretrainConfig]:
        """What the planner lets on the device, the largest first; recompute only where a micro batch of 4 does not go."""
        if self.cpu:
            yield self.settings(job, 8, "none")
            return
        sizes = {"none": (32, 16, 8, 4), "full": (32, 16, 8, 4, 2, 1)}
        for recompute, micros in sizes.items():
            for micro in micros:
                settings = self.settings(job, micro, recompute)
                if plan(settings, 1).total <= self.room:
                    yield settings


class Enough(Exception):
    """Ends a run that has been measured."""


class Late(Exception):
    """Ends a run for which there is no time."""


def row(bench: Bench, job: Job) -> str:
    """The line of a run; a batch that runs out of memory against the plan is said, and the next smaller one taken."""
    for settings in bench.choices(job):
        try:
            speed, allocated, held = measure(bench, settings)
        except CourseError as error:
            print(f"{job}, micro batch {settings.batch.micro_size}: {error}", flush=True)
            if str(error).startswith("out of memory"):
                continue
            return f"| {job.name} | {job.dropout} | {job.compile} | failed: {error} | | | | | | |\n"
        share = speed * settings.model.flops_per_token(settings.data.seq_length) / bench.rate
        return (
            f"| {job.name} | {job.dropout} | {job.compile} | {settings.batch.micro_size} | {settings.model.recompute} | {speed:,.0f} "
            f"| {share:.1%} | {allocated / GB:.1f} | {held / GB:.1f} | {plan(settings, 1).total / GB:.1f} |\n"
        )
    return f"| {job.name} | {job.dropout} | {job.compile} | does not fit | | | | | | |\n"


def measure(bench: Bench, settings: PretrainConfig) -> tuple[float, float, float]:
    """(tokens/s, peak of what PyTorch allocated, peak of what the run held on the device [bytes]), warm-up left out."""
    seen = 0

    def say(line: str) -> None:
        nonlocal seen
        seen += 1
        print(line, flush=True)
        if seen == bench.entries:
            raise Enough

    with held_on_device() as peak, suppress(Enough):
        train(Gpt2(settings), say=say)
    entries = log.read(settings.engine.output_dir)
    tokens = settings.batch.micro_size * settings.data.seq_length
    return tokens / median(entry["batch_cost"] for entry in entries[2:]), entries[-1]["memory"], peak()


@contextmanager
def held_on_device() -> Iterator[Callable[[], float]]:
    """Watches how much more of the device is taken than before: caches and contexts as well [bytes]."""
    if not torch.cuda.is_available():
        yield lambda: 0.0
        return
    free, done = [torch.cuda.mem_get_info()[0]], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            free.append(torch.cuda.mem_get_info()[0])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: float(free[0] - min(free))
    finally:
        done.set()
        watcher.join()


def matrix_rate(cpu: bool) -> float:
    """bf16 matrix products of the device [FLOP/s]: the best of ten turns."""
    size, device = (256, "cpu") if cpu else (8192, "cuda")
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    times = []
    for _ in range(10):
        started = perf_counter()
        for _ in range(20):
            a @ b
        if not cpu:
            torch.cuda.synchronize()
        times.append(perf_counter() - started)
    return 20 * 2 * size**3 / min(times)


def prepare(folder: Path) -> None:
    """Tokens that every shape has rows for, and a tokenizer folder."""
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, ENTRIES)}
    (folder / "tokenizer").mkdir()
    save(Tokenizer(WordLevel(words, "<unk>")), Preparation(False, False), folder / "tokenizer")
    with IndexedWriter(folder / "tokens", np.dtype("<u2")) as writer:
        writer.append(np.random.default_rng(0).integers(3, 6000, 4_000_000, "<u2"), np.full(4_000, 1_000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu_pretrain.md"))
    parser.add_argument("--minutes", type=float, default=7.5, help="in all")
    parser.add_argument("--cpu", action="store_true", help="the tiny shape, two short entries")
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        parser.error("no GPU here; --cpu tries the path")
    end = monotonic() + 60 * options.minutes
    rate = matrix_rate(options.cpu)
    torch.cuda.empty_cache()
    room = 0.0 if options.cpu else torch.cuda.mem_get_info()[1] - MARGIN
    device = "CPU" if options.cpu else torch.cuda.get_device_name()
    table = f"{device}, torch {torch.__version__}, bf16 matrix products {rate / 1e12:.3g} TFLOP/s\n\n{HEAD}"
    signal.signal(signal.SIGALRM, _late)
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        bench = Bench(Path(name), options.cpu, rate, room, *((1, 3) if options.cpu else (5, 8)))
        for job in [Job("gpt2-tiny", 0.0, False)] if options.cpu else JOBS:
            signal.alarm(max(int(end - monotonic()), 1))
            try:
                table += row(bench, job)
            except Late:
                table += f"| {job.name} | {job.dropout} | {job.compile} | no time left | | | | | | |\n"
            signal.alarm(0)
            options.output.write_text(table)
    print(table)


def _late(*_: Any) -> None:
    raise Late


if __name__ == "__main__":
    main()
