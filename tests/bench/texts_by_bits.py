"""Bits above the source beside texts without a contradiction, for GPT-2 and for GPTSAN's base: the table of section 5.7.

    python -m tests.bench.texts_by_bits [--steps 1000 1500]

Trains the tiny GPT-2 for each number of steps, each with a schedule of its own, in this process. The last two lines are the
products of chapters 4 and 5 (built if missing). Prints one line of CSV a model; course_lib/gptsan/texts_by_bits.csv has them.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from course_lib.evaluation.bits import bits
from course_lib.evaluation.causal import FolderScorer
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.gptsan import config as gptsan
from course_lib.gptsan import products as chapter5
from course_lib.gptsan.generate import GPTSanGenerator
from course_lib.gptsan.score import GPTSanScorer
from course_lib.pretrain import products as chapter4
from course_lib.pretrain import text_codec
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.export import export
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.world.check import check
from course_lib.world.genres import documents

from tests.bench import known_answer, seeds

TEXTS, LENGTH, SEED = 256, 250, 1


def documents_read(settings: PretrainConfig, steps: int) -> int:
    """Return the number of documents in the training samples; each begins behind an end-of-document token."""
    run, number = Gpt2(settings), steps * settings.batch.resolve(1).total
    samples, (_, end) = run.data(number).train, run.special_ids
    return sum(int((samples[row] == end).sum()) - 1 for row in range(number))


def gpt2(folder: Path) -> tuple[Any, list[str]]:
    """Return a scorer for a GPT-2 in a folder, and what it writes."""
    generator = Generator(folder, text_codec.load)
    how = GenerateConfig(max_new_tokens=LENGTH, top_k=0, top_p=1.0, temperature=1.0, seed=SEED)
    return FolderScorer(generator), [one.text for (one,) in generator.generate([""] * TEXTS, how)]


def base() -> tuple[Any, list[str]]:
    """Return a scorer for GPTSAN's base, and what it writes."""
    generator = GPTSanGenerator.open(chapter5.BASE.path() / chapter5.MODEL)
    how = gptsan.GenerateConfig(num_generate=TEXTS, max_new_tokens=LENGTH, top_k=0, seed=SEED)
    return GPTSanScorer(generator), [text.strip() for text in generator.continue_text("", how)]


def report(name: str, steps: int, read: int, model: tuple[Any, list[str]]) -> None:
    """Print a model's line: steps, documents read, bits per character of new documents, and the faults of its texts."""
    scorer, written = model
    held_out = [*documents(*known_answer.HELD_OUT)]
    characters = sum(len(one.text) for one in held_out)
    source, cost = sum(one.bits for one in held_out) / characters, bits(scorer, [one.text for one in held_out])
    faults = [(not all(v.readings), bool(v.contradictions)) for v in map(check, written)]
    broken = sum(broken for broken, _ in faults)
    wrong = sum(contradicts for broken, contradicts in faults if not broken)
    tokens = cost.tokens / cost.documents
    print(
        f"{name},{steps},{read},{tokens:.1f},{source:.4f},{cost.bits_per_character:.4f},{TEXTS},{broken},{wrong}",
        flush=True,
    )


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="*", default=[1000, 1500])
    chosen, settings = parser.parse_args(), chapter4.run_settings()
    settings = replace(settings, launch=replace(settings.launch, ranks=1))
    print("model,steps,documents,tokens_per_document,source,bits,texts,broken,contradict", flush=True)
    for steps in chosen.steps:
        short = replace(settings, engine=replace(settings.engine, max_steps=steps, eval_freq=0))
        with tempfile.TemporaryDirectory() as name:
            run = seeds.trained(Gpt2, short, short.engine.seed, Path(name) / "run")
            export(run.folder, Path(name) / "model")
            report("GPT-2", steps, documents_read(short, steps), gpt2(Path(name) / "model"))
    whole = settings.engine.max_steps or 0
    report("GPT-2", whole, documents_read(settings, whole), gpt2(chapter4.GPT2.path() / "model"))
    of_base = chapter5.base_settings()
    steps = of_base.engine.max_steps or 0
    report("GPTSAN", steps, steps * of_base.batch.resolve(1).total, base())


if __name__ == "__main__":
    main()
