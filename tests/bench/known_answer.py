"""A training whose answer is known: a GPT-2 on the small world must come close to the entropy of its generator.

    python -m tests.bench.known_answer -o FOLDER [--set launch.ranks=4] [--set precision.dtype=bf16]
    python -m tests.bench.known_answer -o FOLDER --muon   # on one rank, half as many steps

A training that is wrong without an error (a shifted target, a shard that is not updated, a number format that loses
gradients) ends far above the source. Run it on a new machine, with its ranks, device and precision, before a long job.
Exit code 1 if the held-out text costs more than the source and the allowance below.
"""

import argparse
import random
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from course_lib.evaluation.bits import bits
from course_lib.evaluation.causal import FolderScorer
from course_lib.evaluation.trigram import Trigram
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.japanese.pipeline import segment_file
from course_lib.parallel import default_workers
from course_lib.pretrain import text_codec
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.encode import tokenize
from course_lib.pretrain.export import export
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.subword.bpe import train_bpe
from course_lib.subword.config import BpeConfig
from course_lib.training.loop import train
from course_lib.world.check import table
from course_lib.world.genre import Document
from course_lib.world.genres import documents, write_documents

SETTINGS = "gpt2-tiny.yaml"
# Number of documents, seed. The training documents are those of the profile tiny.
TRAINING, HELD_OUT = (16_000, 0), (600, 1)
# Bits per character above the source that a sound training stays below (README.md has the figures).
ALLOWED = 0.08
MUON = (
    "optimizer.name=muon", "optimizer.lr.decay=trapezoid", "optimizer.lr.min=0", "launch.ranks=1",
    "engine.max_steps=1160", "engine.save_steps=1160",
)  # fmt: skip


def prepare(folder: Path, vocab_size: int) -> tuple[Path, Path]:
    """Write the world's text, its tokenizer and its tokens; return the prefix of the token files and the tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    text, lines, tokenizer = folder / "world.jsonl", folder / "world.txt", folder / "tokenizer"
    write_documents(text, *TRAINING)
    segment_file(text, lines, workers=default_workers())
    train_bpe([lines], tokenizer, BpeConfig(vocab_size=vocab_size), show_progress=False)
    tokenize([lines], tokenizer, folder / "world", default_workers(), append_eod=True)
    return folder / "world", tokenizer


def trained(folder: Path, changes: list[str]) -> Path:
    """Train on the world with changed settings, and return the folder of the Hugging Face model."""
    settings = config.load(PretrainConfig, SETTINGS, changes)
    tokens, tokenizer = prepare(folder, settings.model.vocab_size)
    settings = replace(
        settings,
        data=replace(settings.data, input=(tokens,), tokenizer=tokenizer),
        engine=replace(settings.engine, output_dir=folder / "run"),
    )
    began, busy = perf_counter(), process_time()
    train(Gpt2(settings))
    print(f"training: {perf_counter() - began:.0f} s, of which this process was busy {process_time() - busy:.0f} s")
    export(folder / "run", folder / "model")
    return folder / "model"


def measure(model: Path, samples: int = 256) -> dict[str, Any]:
    """Return bits per character of held-out text for the source, the model and a trigram model, and what it writes."""
    held_out: list[Document] = [*documents(*HELD_OUT)]
    texts, known = [one.text for one in held_out], [one.text for one in documents(*TRAINING)]
    generator = Generator(model, text_codec.load)
    how = GenerateConfig(max_new_tokens=250, top_k=0, top_p=1.0, temperature=1.0, seed=1)
    written = [one.text for (one,) in generator.generate([""] * samples, how)] if samples else []
    return {
        "source": sum(one.bits for one in held_out) / sum(map(len, texts)),
        "model": bits(FolderScorer(generator), texts).bits_per_character,
        "trigram": bits(Trigram(random.Random(0).sample(known, 4_000)), texts).bits_per_character,
        "written": table(written, known) if samples else {},
    }


def main() -> None:
    """Train, measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", type=Path, required=True, help="folder of the run, kept")
    parser.add_argument("--set", action="append", default=[], help="a setting of the run, as for course pretrain")
    parser.add_argument("--muon", action="store_true", help=f"these settings first: {', '.join(MUON)}")
    chosen = parser.parse_args()
    found = measure(trained(chosen.o, [*(MUON if chosen.muon else ()), *chosen.set]))
    for name, value in found.items():
        print(f"{name}: {value:.3f} bits per character" if isinstance(value, float) else f"{name}: {value}")
    excess = found["model"] - found["source"]
    verdict = f"{excess:.3f} bits per character above the source; allowed: {ALLOWED}"
    if excess > ALLOWED:
        raise SystemExit(verdict)
    print(verdict)


if __name__ == "__main__":
    main()
