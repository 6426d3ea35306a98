"""The course's six tokenizers, judged by GPT-2 models that beat a character trigram.

    python -m tests.bench.bench_tokenizers TRAIN.jsonl HELD_OUT.jsonl -o FOLDER [--entries 12000] [--sample 9000000]
        [--seconds 3600 | --characters 30000000] [--shape 256 6 4 256 16] [--dtype bf16] [--seeds 1] [--only NAME …]
    python -m tests.bench.bench_tokenizers --quick -o FOLDER             bundled text, models of a few steps

Each tokenizer learns `--entries` entries from the first `--sample` characters of TRAIN. Then a GPT-2 reads all of
TRAIN, by Muon, for `--seconds`, or until it has read `--characters` of it, which is a different number of tokens for
each tokenizer. Its bits per character are those of HELD_OUT, beside a character trigram of TRAIN, of as many characters
as the models read, with --seconds of all. Line breaks are removed from both texts, as in every figure of bits per character.

The table, FOLDER/tokenizers.csv, gets a row after each model, and those that are there are not trained again: 6 models
of an hour are 6 hours of two quiet cores. What else FOLDER holds can be deleted.

Section 3.7 shows course_lib/subword/tokenizers.csv: --characters 3000000 --shape 256 4 4 256 8 --threads 1, on 11 million
characters of Aozora Bunko, with 136 of its 407 held-out pieces.
"""

import argparse
import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np
from course_lib.documents import read_texts
from course_lib.evaluation.scoring import one_line
from course_lib.japanese.pipeline import segment_file
from course_lib.pretrain import encode
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.indexed import IndexedDataset
from course_lib.settings import config
from course_lib.subword import folder
from course_lib.subword.bpe import train_bpe
from course_lib.subword.compare import compare
from course_lib.subword.config import BpeConfig, UnigramConfig
from course_lib.subword.unigram import train_unigram

COLUMNS = (
    "tokenizer", "segmenting [s]", "training [s]", "entries", "entries used", "characters per token", "lost",
    "seed", "seconds", "steps", "million tokens", "million characters", "bits per character", "trigram",
)  # fmt: skip
# Documents of the held-out text on which tokenizers are measured.
MEASURED = 200


@dataclass(frozen=True)
class Plan:
    """What is trained, on what, and how long."""

    train: Path
    held_out: Path
    entries: int
    sample: int  # characters that the tokenizers learn from
    shape: tuple[int, ...]  # width, layers, heads, positions, batch
    dtype: str
    seconds: float | None  # of each model's training; None: `characters` decide
    characters: int
    threads: int


def tokenizers(entries: int) -> dict[str, tuple[bool, Callable[[Path, Path], object]]]:
    """Return {name: (whether it learns from segmented lines, its training)}."""
    bpe = BpeConfig(vocab_size=entries, limit_alphabet=entries * 2 // 3)
    lossy = replace(bpe, lossless=False, byte_fallback=False)
    unigram = UnigramConfig(vocab_size=entries)
    words = replace(unigram, within_words=True)

    def by_bpe(settings: BpeConfig, source: Path, target: Path) -> object:
        return train_bpe([source], target, settings, show_progress=False)

    def by_unigram(settings: UnigramConfig, source: Path, target: Path) -> object:
        return train_unigram([source], target, settings)

    return {
        "bpe": (True, partial(by_bpe, bpe)),
        "bpe-recipe": (True, partial(by_bpe, lossy)),
        "bpe-raw": (False, partial(by_bpe, bpe)),
        "unigram": (True, partial(by_unigram, unigram)),
        "unigram-raw": (False, partial(by_unigram, unigram)),
        "unigram-words": (True, partial(by_unigram, words)),
    }


def write_documents(texts: Iterator[str], target: Path, most: int | None = None) -> int:
    """Write documents until there are `most` characters, and return how many characters there are."""
    characters = 0
    with target.open("w", encoding="utf8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            characters += len(text)
            if most is not None and characters >= most:
                break
    return characters


def settings_of(plan: Plan, place: Path, entries: int, steps: int | None, seed: int) -> PretrainConfig:
    """Return the settings of a model's run on PLACE/tokens."""
    width, layers, heads, positions, batch = plan.shape
    model = {
        "vocab_size": entries, "hidden_size": width, "num_layers": layers, "num_attention_heads": heads,
        "max_position_embeddings": positions, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip
    optimizer = {
        "name": "muon", "weight_decay": 0.0, "beta2": 0.95,
        "lr": {"max": 3e-3, "min": 0.0, "warmup_rate": 0.02, "decay": "trapezoid"},
    }  # fmt: skip
    values = {
        "model": model, "optimizer": optimizer, "precision": {"dtype": plan.dtype},
        "data": {
            "input": [str(place / "tokens")], "tokenizer": str(place / "tokenizer"), "seq_length": positions,
            "split": "1,0,0",
        },
        "batch": {"local_size": batch, "micro_size": batch},
        "engine": {
            "output_dir": str(place / f"run-{seed}"), "max_steps": steps, "max_seconds": None if steps else plan.seconds,
            "eval_freq": 0, "logging_freq": 100, "tracking": [], "seed": seed,
        },
        "launch": {"ranks": 1, "threads": plan.threads},
    }  # fmt: skip
    return config.build(PretrainConfig, values)


def judged(plan: Plan, place: Path, seed: int, characters: int) -> dict[str, object]:
    """Train a model on PLACE/tokens, of a text of so many characters, and return its columns of the table."""
    from course_lib.command_line.evaluate import open_model
    from course_lib.evaluation.bits import bits
    from course_lib.pretrain.gpt2 import Gpt2
    from course_lib.training.loop import silent, train

    entries = folder.load(place / "tokenizer").tokenizer.get_vocab_size()
    tokens = len(IndexedDataset(place / "tokens").tokens)
    per_step = plan.shape[3] * plan.shape[4]
    steps = None if plan.seconds else max(round(plan.characters * tokens / characters / per_step), 1)
    run = Gpt2(settings_of(plan, place, entries, steps, seed))
    started = perf_counter()
    trained = train(run, on_message=silent)
    seconds = perf_counter() - started
    run.export(place / f"model-{seed}")
    found = bits(open_model(place / f"model-{seed}"), read_texts(plan.held_out))
    read = trained.steps * per_step
    return {
        "seed": seed, "seconds": round(seconds), "steps": trained.steps, "million tokens": f"{read / 1e6:.3f}",
        "million characters": f"{read * characters / tokens / 1e6:.3f}",
        "bits per character": f"{found.bits_per_character:.3f}", "lost": f"{found.lost:.2%}",
    }  # fmt: skip


def trained_tokenizer(plan: Plan, name: str, place: Path) -> dict[str, object]:
    """Train a tokenizer, encode the models' text with it, and return its columns of the table."""
    segmented, train = tokenizers(plan.entries)[name]
    place.mkdir(parents=True, exist_ok=True)
    source = place / "sample.jsonl"
    write_documents(read_texts(plan.train), source, plan.sample)
    started = perf_counter()
    if segmented:
        segment_file(source, place / "sample.txt")
        source = place / "sample.txt"
    ready = perf_counter()
    train(source, place / "tokenizer")
    ended = perf_counter()
    (measures,) = compare({name: folder.load(place / "tokenizer")}, list(islice(read_texts(plan.held_out), MEASURED)))
    encode.tokenize([plan.train], place / "tokenizer", place / "tokens", plan.threads, append_eod=True)
    used = np.unique(IndexedDataset(place / "tokens").tokens)
    return {
        "tokenizer": name, "segmenting [s]": f"{ready - started:.1f}", "training [s]": f"{ended - ready:.1f}",
        "entries": measures.vocabulary, "entries used": len(used),
        "characters per token": f"{measures.characters_per_token:.3f}",
    }  # fmt: skip


def rows_of(table: Path) -> list[dict[str, str]]:
    """Return the rows that the table has."""
    if not table.exists():
        return []
    with table.open(encoding="utf8", newline="") as file:
        return list(csv.DictReader(file))


def add(table: Path, row: dict[str, object]) -> None:
    """Add a row to the table."""
    known = table.exists()
    with table.open("a", encoding="utf8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not known:
            writer.writeheader()
        writer.writerow(row)


def measure(plan: Plan, target: Path, names: list[str], seeds: int) -> None:
    """Train and judge what the table lacks, and print it."""
    from course_lib.command_line.evaluate import trigram_model
    from course_lib.evaluation.bits import bits

    target.mkdir(parents=True, exist_ok=True)
    table, texts = target / "tokenizers.csv", target / "text.jsonl"
    characters = write_documents(map(one_line, read_texts(plan.train)), texts)
    plan = replace(plan, train=texts)
    counted = texts
    if not plan.seconds:
        counted = target / "counted.jsonl"
        write_documents(read_texts(texts), counted, plan.characters)
    trigram = bits(trigram_model([counted]), read_texts(plan.held_out)).bits_per_character
    for name in names:
        known = {int(row["seed"]) for row in rows_of(table) if row["tokenizer"] == name}
        if missing := [seed for seed in range(seeds) if seed not in known]:
            tokenizer = trained_tokenizer(plan, name, target / name)
            for seed in missing:
                model = judged(plan, target / name, seed, characters)
                add(table, tokenizer | model | {"trigram": f"{trigram:.3f}"})
                print(rows_of(table)[-1], flush=True)
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for row in rows_of(table):
        print("| " + " | ".join(row.values()) + " |")


def quick_plan(target: Path) -> Plan:
    """Return a plan for a minute: the bundled encyclopedia, and models of a few steps."""
    from course_lib.corpus.wikipedia import extract
    from course_lib.paths import data

    target.mkdir(parents=True, exist_ok=True)
    extract(data("jawiki-sample.xml.bz2"), target / "wiki.jsonl")
    texts = list(read_texts(target / "wiki.jsonl"))
    write_documents(iter(texts[::8]), target / "held-out.jsonl")
    write_documents((text for at, text in enumerate(texts) if at % 8), target / "train.jsonl")
    return Plan(
        target / "train.jsonl", target / "held-out.jsonl", 4000, 10**6, (32, 1, 1, 64, 4), "fp32", None, 2000, 1
    )


def main() -> None:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path, nargs="?")
    parser.add_argument("held_out", type=Path, nargs="?")
    parser.add_argument("-o", dest="target", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--entries", type=int, default=12_000)
    parser.add_argument("--sample", type=int, default=9_000_000)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float)
    length.add_argument("--characters", type=int, default=30_000_000)
    parser.add_argument("--shape", type=int, nargs=5, metavar=("WIDTH", "LAYERS", "HEADS", "POSITIONS", "BATCH"))
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=tokenizers(3), default=list(tokenizers(3)))
    chosen = parser.parse_args()
    if chosen.quick:
        plan = quick_plan(chosen.target)
    elif chosen.held_out:
        plan = Plan(
            chosen.train, chosen.held_out, chosen.entries, chosen.sample, tuple(chosen.shape or (256, 6, 4, 256, 16)),
            chosen.dtype, chosen.seconds, chosen.characters, chosen.threads,
        )  # fmt: skip
    else:
        parser.error("TRAIN, HELD_OUT: not given; allowed: both, or --quick")
    measure(plan, chosen.target, chosen.only, chosen.seeds)


if __name__ == "__main__":
    main()
