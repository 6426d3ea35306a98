"""Trains aozora to answer questions, as a prefix and with all weights, and counts the right answers of each kind.

`python -m tests.bench.instructions [--seeds 0 1 2]` writes course_lib/prefix/instructions.csv, which 6.12 shows. A training
takes one or two minutes of a core. 50 pairs choose the rate of each way with seed 0; the 100 others judge it at this rate,
and with other seeds if asked. What the file has is not trained again. The loop is that of the notebook, and the prefix
starts as the key/value cache of five examples.
"""

import argparse
import copy
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import nbformat
import torch
from course_lib.checkpoints import aozora
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.generation.prefix_cache import Prefix
from course_lib.notebooks import measured
from course_lib.paths import NOTEBOOKS
from course_lib.prefix import instructions
from course_lib.prefix.instructions import KINDS, Instruction
from course_lib.prefix.measure import right
from course_lib.prefix.samples import batches
from course_lib.prefix.warm_start import cache_values
from course_lib.pretrain import text_codec
from torch import Tensor, nn

from tests.exercises.answers.folded import Folded

NOTEBOOK, LOOP, TABLE = "06_prefix_tuning", "tuning-041", "prefix/instructions"
STEPS, BATCH = 75, 8
RATES = {"prefix": (3e-2, 1e-1), "all weights": (3e-4, 1e-3)}
LONGEST = 24  # tokens of an answer
COLUMNS = ("part", "way", "rate", "seed", *KINDS, "format", "seconds")


class Bench:
    """The base, its pairs, and the ways to train it."""

    def __init__(self) -> None:
        self.generator = Generator(aozora.folder(), text_codec.load, dtype=torch.float32)
        self.base, self.codec = self.generator.model.requires_grad_(False), text_codec.load(aozora.folder())
        self.train, self.choose, self.judge = instructions.parts()
        names: dict[str, Any] = {"torch": torch, "nn": nn, "device": "cpu"}
        self.names = Folded(NOTEBOOK, **names).names
        for cell in nbformat.read(NOTEBOOKS / f"{NOTEBOOK}.ipynb", as_version=4).cells:
            if cell.id == LOOP:
                exec(cell.source, self.names)
        self.rows = measured.rows(TABLE) if measured.path(TABLE).is_file() else []

    def shots(self) -> Tensor:
        """The cache of a prompt with examples."""
        return cache_values(self.base, self.codec.prompt(instructions.examples()))

    def opening(self, way: str) -> Sequence[int]:
        """What precedes a text: a prefix was trained without the begin-of-text token."""
        return () if way == "prefix" else self.codec.opening

    def encoded(self, pairs: Sequence[Instruction], opening: Sequence[int]) -> list[Any]:
        """What is read and learned of each pair."""
        encode, end = self.codec.encode, self.codec.tokenizer.eos_token_id
        return [self.names["example"]([*opening, *encode(pair.prompt)], encode(pair.target), end) for pair in pairs]

    def trained(self, way: str, rate: float, seed: int) -> tuple[Callable[[Tensor], Tensor], Any, float]:
        """Train; return what gives the logits for ids, the trained rows or model, and the seconds of a core."""
        began = time.process_time()
        model: Any
        forward: Callable[[Tensor], Tensor]
        if way == "prefix":
            model = self.shots().requires_grad_()
            forward, trained = partial(self.names["with_prefix"], self.base, model), [model]
        else:
            model = copy.deepcopy(self.base).requires_grad_()
            forward, trained = (lambda ids: model(ids).logits), list(model.parameters())
        drawn = batches(self.encoded(self.train, self.opening(way)), STEPS, seed, BATCH)
        losses = self.names["learn"](forward, trained, drawn, rate)
        print(f"{way} {rate} seed {seed}: loss {losses[0]:.2f} → {losses[-1]:.2f}", flush=True)
        return forward, model, time.process_time() - began

    def counted(self, pairs: Sequence[Instruction], correct: Sequence[bool]) -> dict[str, int]:
        """The right answers of each kind."""
        return {
            kind: sum(good for pair, good in zip(pairs, correct, strict=True) if pair.kind == kind) for kind in KINDS
        }

    def answers(self, rows: Tensor | None, model: Any, first_line: bool) -> list[str]:
        """The greedy answers to the judging questions; of a prompt with examples, the first line is the answer."""
        self.generator.model = model
        prefix = None if rows is None else Prefix(rows.detach(), "bench")
        settings = GenerateConfig(strategy="greedy", max_new_tokens=LONGEST, min_new_tokens=0)
        asked = [pair.prompt for pair in self.judge]
        texts = [row[0].continuation for row in self.generator.generate(asked, settings, [prefix] * len(asked))]
        self.generator.model = self.base
        for pair, text in list(zip(self.judge, texts, strict=True))[:10]:
            print(repr(pair.prompt), repr(text), flush=True)
        # An answer without a line break goes on and on: it has no form.
        return [text.partition("\n")[0] if "\n" in text else "" for text in texts] if first_line else texts

    def judged(self, way: str, rate: float | str, seed: int | str, answers: Sequence[str], seconds: float) -> None:
        """Write a row of right answers, and of answers that have the form of one sentence."""
        correct = [answer == pair.target for answer, pair in zip(answers, self.judge, strict=True)]
        form = sum(answer.endswith("。") and answer.count("。") == 1 and "\n" not in answer for answer in answers)
        self.write("judge", way, rate, seed, self.counted(self.judge, correct), form, seconds)

    def known(self, *run: Any) -> dict[str, int] | None:
        """The right answers of a run that the table has."""
        for row in self.rows:
            if [row[name] for name in COLUMNS[:4]] == list(run):
                return {kind: row[kind] for kind in KINDS}
        return None

    def write(
        self, part: str, way: str, rate: Any, seed: Any, right: dict[str, int], form: int | str, seconds: float
    ) -> None:
        values = (part, way, rate, seed, *right.values(), form, round(seconds))
        self.rows.append(dict(zip(COLUMNS, values, strict=True)))
        print(self.rows[-1], flush=True)
        measured.write(TABLE, self.rows)

    def run(self, seeds: Sequence[int]) -> None:
        """Judge the base, choose the rates, then train and judge the seeds."""
        for way, rows in (("the question alone", None), ("five examples", self.shots())):
            if self.known("judge", way, "", "") is None:
                self.judged(way, "", "", self.answers(rows, self.base, True), 0)
        best: dict[str, float] = {}
        kept: dict[tuple[str, float], Any] = {}  # trained with seed 0
        for way, rates in RATES.items():
            found: dict[float, int] = {}
            for rate in rates:
                counts = self.known("choose", way, rate, 0)
                if counts is None:
                    forward, trained, seconds = self.trained(way, rate, 0)
                    kept[way, rate] = trained, seconds
                    asked = self.encoded(self.choose, self.opening(way))
                    counts = self.counted(self.choose, right(forward, asked))
                    self.write("choose", way, rate, 0, counts, "", seconds)
                found[rate] = sum(counts.values())
            best[way] = max(found, key=lambda rate: found[rate])
        for seed in seeds:
            for way, rate in best.items():
                if self.known("judge", way, rate, seed) is None:
                    if seed == 0 and (way, rate) in kept:
                        trained, seconds = kept[way, rate]
                    else:
                        _, trained, seconds = self.trained(way, rate, seed)
                    rows, model = (trained, self.base) if way == "prefix" else (None, trained)
                    self.judged(way, rate, seed, self.answers(rows, model, False), seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    torch.set_num_threads(1)
    Bench().run(parser.parse_args().seeds)
