"""GPTSAN 2.8B with 14 extra layers on one GPU, random weights: training through `course gptsan train`'s own path, and generation.

    python -m tests.bench.gpu_gptsan [-o gpu_gptsan.md] [--minutes 7.5] [--cpu]

Generation first: tokens/s by the number of texts. Then the extra stage alone (the base frozen) and full training, both with the spout: bf16,
ZeRO-2, examples of 1024 random tokens, the largest power of two up to 32 as micro batch that the planner lets on the card; tokens/s, and
memory against the planner's. A run is ended after its last measured step, so nothing is saved. What the minutes do not allow is left out.
`--cpu` takes the same path with a tiny shape, to see that it works.
"""

import argparse
import json
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import torch
from course_lib import config
from course_lib.errors import CourseError
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.configuration import GPTSanConfig
from course_lib.gptsan.examples import ExampleWriter
from course_lib.gptsan.freeze import BASE
from course_lib.gptsan.generate import Generator, Prompt
from course_lib.gptsan.generation_config import GenerateConfig
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.shape import ShapeConfig
from course_lib.gptsan.task import Gptsan
from course_lib.gptsan.tokenizer import load_tokenizer
from course_lib.training import log
from course_lib.training.launch import train
from course_lib.training.planner import plan

from tests.bench.gpu_pretrain import GB, MARGIN, Enough, Late, held_on_device
from tests.gptsan import handmade

GENERATION = "| generation, texts at once | new tokens each | tokens/s | ms a step | peak allocated, GB |\n|---|---|---|---|---|\n"
TRAINING = (
    "| training | micro batch | recompute | tokens/s | peak allocated, GB | held on the card, GB | planner, GB |\n"
    "|---|---|---|---|---|---|---|\n"
)
JOBS = {"extra stage": BASE, "everything": None}  # model.ignore
TINY = {
    "vocab_size": 400,
    "max_position_embeddings": 136,
    "d_model": 32,
    "d_ff": 64,
    "d_ext": 64,
    "d_spout": 8,
    "num_heads": 4,
    "num_experts": 4,
}
CLASSES = 4


@dataclass(frozen=True)
class Bench:
    """What all runs share."""

    folder: Path
    cpu: bool
    room: float  # memory of the device [bytes]
    every: int  # steps in a log entry
    entries: int  # of which the first two are warm-up

    @property
    def shape(self) -> ShapeConfig:
        if self.cpu:
            return ShapeConfig(**TINY, num_switch_layers=2, num_ext_layers=2)
        return ShapeConfig(num_ext_layers=14)

    @property
    def length(self) -> int:
        return 128 if self.cpu else 1024

    def settings(self, job: str, micro: int, recompute: str) -> GptsanConfig:
        values = {
            "model": {"shape": config.to_dict(self.shape), "ignore": JOBS[job], "recompute": recompute},
            "data": {"input": str(self.folder / "examples"), "tokenizer": str(self.folder / "tokenizer"), "held_out": 0.0},
            "spout": {"mode": "onehot"},
            "batch": {"micro_size": micro},
            "precision": {"dtype": "bf16"},
            "zero": {"stage": 2},
            "engine": {
                "output_dir": str(self.folder / f"{job}-{micro}-{recompute}"), "max_steps": 2 * self.every * self.entries,
                "save_steps": 1_000_000, "logging_freq": self.every, "eval_freq": 0, "test_iters": 0, "tracking": [],
            },
            "launch": {"ranks": 1},
        }  # fmt: skip
        return config.build(GptsanConfig, values)

    def choices(self, job: str) -> Iterator[GptsanConfig]:
        """What the planner lets on the device, the largest first; recompute only where a micro batch of 4 does not go."""
        if self.cpu:
            yield self.settings(job, 8, "none")
            return
        for recompute, micros in {"none": (32, 16, 8, 4), "full": (32, 16, 8, 4, 2, 1)}.items():
            for micro in micros:
                settings = self.settings(job, micro, recompute)
                if plan(settings, 1).total <= self.room:
                    yield settings


def training_row(bench: Bench, job: str) -> str:
    """The line of a run; a batch that runs out of memory against the plan is said, and the next smaller one taken."""
    for settings in bench.choices(job):
        try:
            speed, allocated, held = measure(bench, settings)
        except CourseError as error:
            print(f"{job}, micro batch {settings.batch.micro_size}: {error}", flush=True)
            if str(error).startswith("out of memory"):
                continue
            return f"| {job} | failed: {error} | | | | | |\n"
        return (
            f"| {job} | {settings.batch.micro_size} | {settings.model.recompute} | {speed:,.0f} "
            f"| {allocated / GB:.2f} | {held / GB:.2f} | {plan(settings, 1).total / GB:.2f} |\n"
        )
    return f"| {job} | does not fit | | | | | |\n"


def measure(bench: Bench, settings: GptsanConfig) -> tuple[float, float, float]:
    """(tokens/s, peak of what PyTorch allocated, peak of what the run held on the device [bytes]), warm-up left out."""
    seen = 0

    def say(line: str) -> None:
        nonlocal seen
        seen += 1
        print(line, flush=True)
        if seen == bench.entries:
            raise Enough

    with held_on_device() as peak, suppress(Enough):
        train(Gptsan(settings), say=say)
    entries = log.read(settings.engine.output_dir)
    tokens = settings.batch.micro_size * bench.length
    return tokens / median(entry["batch_cost"] for entry in entries[2:]), entries[-1]["memory"], peak()


def generation_rows(bench: Bench) -> Iterator[str]:
    """Lines for one text and for more at once, behind a prompt of 32 tokens, with a class on the spout."""
    device, length = ("cpu", 16) if bench.cpu else ("cuda", 256)
    words = load_tokenizer(bench.folder / "tokenizer")
    named = {"pad_token_id": words.sep, "eos_token_id": words.eot, "separator_token_id": words.seg}
    shape = GPTSanConfig(**config.to_dict(bench.shape), **named)
    with torch.device(device):
        model = GPTSanForCausalLM._from_config(shape, dtype=torch.bfloat16)
    model.final_logits_bias[0, words.eot] = -1e9  # no text ends
    generator, prompt = Generator(model, words), Prompt(list(range(32)), [], 1)
    for texts in (1, 4) if bench.cpu else (1, 16, 64):
        settings = GenerateConfig(num_generate=texts, max_new_tokens=length, spout=1)
        times = []
        for _ in range(2):  # the first is warm-up
            started = perf_counter()
            found = generator.tokens(prompt, settings).tolist()  # waits for the device
            times.append(perf_counter() - started)
        assert [len(row) for row in found] == [length] * texts
        memory = 0.0 if bench.cpu else torch.cuda.max_memory_allocated()
        speed, step = texts * length / times[-1], times[-1] / length
        yield f"| {texts} | {length} | {speed:,.0f} | {step * 1e3:.1f} | {memory / GB:.2f} |\n"


def prepare(bench: Bench) -> None:
    """Random examples of a few classes, and a tokenizer folder."""
    handmade.write(bench.folder / "tokenizer")
    count, largest = 64 if bench.cpu else 1024, bench.shape.vocab_size - 1
    folder = bench.folder / "examples"
    folder.mkdir()
    tokens = np.random.default_rng(0).integers(0, largest, (count, bench.length + 1), endpoint=True)
    with ExampleWriter(folder, bench.length) as writer:
        numbers = np.arange(count)
        writer.append(
            x=tokens[:, :-1], y=tokens[:, 1:], i=numbers % CLASSES, num_input=np.ones(count), document=numbers
        )
    classes: dict[str, Any] = {str(label): count // CLASSES for label in range(CLASSES)}
    report = {"examples": count, "num_context": bench.length, "classes": classes, "largest_id": largest}
    (folder / "encoding.json").write_text(json.dumps(report))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu_gptsan.md"))
    parser.add_argument("--minutes", type=float, default=7.5, help="in all")
    parser.add_argument("--cpu", action="store_true", help="a tiny shape, the extra stage only")
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        parser.error("no GPU here; --cpu tries the path")
    end = monotonic() + 60 * options.minutes
    room = 0.0 if options.cpu else torch.cuda.mem_get_info()[1] - MARGIN
    table = f"{'CPU' if options.cpu else torch.cuda.get_device_name()}, torch {torch.__version__}, bf16\n\n{GENERATION}"
    signal.signal(signal.SIGALRM, _late)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), options.cpu, room, *((1, 3) if options.cpu else (5, 6)))
        prepare(bench)
        signal.alarm(max(int(end - monotonic()), 1))
        with suppress(Late):
            for row in generation_rows(bench):
                table += row
                options.output.write_text(table)
        if not options.cpu:
            torch.cuda.empty_cache()  # the runs are processes of their own
        table += f"\n{TRAINING}"
        for job in list(JOBS)[:1] if options.cpu else JOBS:
            signal.alarm(max(int(end - monotonic()), 1))
            try:
                table += training_row(bench, job)
            except Late:
                table += f"| {job} | no time left | | | | | |\n"
            signal.alarm(0)
            options.output.write_text(table)
    print(table)


def _late(*_: Any) -> None:
    raise Late


if __name__ == "__main__":
    main()
