"""Scores of the tiny profile's models on the small world: writes scores.json and README's table.

    python -m tests.bench.bench_evaluate

600 held-out documents, 256 texts that each model samples at temperature 1, and the minimal pairs of `course evaluate --minimal-pairs world`. GPT-2 is
also judged on the 504 grammatical pairs. It takes about a minute if the products are fresh. tests/evaluation/test_scores.py compares README's table
with scores.json.
"""

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

from course_lib import paths
from course_lib.command_line.evaluate import GRAMMAR, TRIGRAM, WORLD, open_model, read_pairs
from course_lib.evaluation.bits import bits
from course_lib.evaluation.causal import FolderScorer
from course_lib.evaluation.pairs import Pair, accuracies, judge
from course_lib.evaluation.scoring import ScoringModel
from course_lib.evaluation.trigram import BEGIN, CODES, END, Trigram
from course_lib.evaluation.windows import WindowSettings
from course_lib.generation.config import GenerateConfig
from course_lib.gptsan import config as gptsan_config
from course_lib.gptsan import products as gptsan
from course_lib.gptsan.score import GPTSanScorer
from course_lib.pretrain import products as pretrain
from course_lib.world.check import table as checked
from course_lib.world.genres import documents
from course_lib.world.pairs import DISTANCES

from tests.bench.known_answer import HELD_OUT, TRAINING

SCORES = Path(__file__).with_name("scores.json")
README = paths.REPOSITORY / "README.md"
BEGIN_TABLE, END_TABLE = "<!-- scores: tests/bench/bench_evaluate.py -->", "<!-- end of scores -->"
SOURCE = "source"
NAMES = {
    SOURCE: "the source: the generator itself",
    "gpt2": "GPT-2 (chapters 4, 6 and 7)",
    "gptsan": "GPTSAN, the base of chapter 5",
    TRIGRAM: "character trigram, the baseline",
}
# Texts that each model samples, and their most tokens (the trigram: characters).
SAMPLES, TOKENS, CHARACTERS = 256, 250, 600
NEAR, FAR = "distance 0", "distance 40-"
SETTINGS = WindowSettings(batch_size=32)


def trigram_texts(model: Trigram, number: int, rng: random.Random) -> list[str]:
    """Sample texts from a trigram model: with Witten–Bell smoothing, a context is shortened with probability kinds / (total + kinds)."""
    followers = defaultdict[str, dict[str, int]](dict)
    for counts in model.counts:
        for gram, count in counts.items():
            followers[gram[:-1]][gram[-1]] = count
    choices = {before: ([*counts], [*accumulate(counts.values())]) for before, counts in followers.items()}

    def character(context: str) -> str:
        for before in (context, context[1:], ""):
            characters, sums = choices.get(before, ([], [0]))
            total, kinds = sums[-1], len(characters)
            if total and rng.random() * (total + kinds) < total:
                return rng.choices(characters, cum_weights=sums)[0]
        return chr(rng.randrange(CODES))

    texts = []
    for _ in range(number):
        text = BEGIN + BEGIN
        while len(text) < CHARACTERS and text[-1] != END:
            text += character(text[-2:])
        texts.append(text[2:].removesuffix(END))
    return texts


def written(model: ScoringModel) -> list[str]:
    """Return texts that a model samples at temperature 1 from nothing."""
    if isinstance(model, Trigram):
        return trigram_texts(model, SAMPLES, random.Random(1))
    if isinstance(model, GPTSanScorer):
        chosen = gptsan_config.GenerateConfig(seed=1, num_generate=SAMPLES, max_new_tokens=TOKENS, top_k=0)
        return [text.strip() for text in model.generator.continue_text("", chosen)]
    assert isinstance(model, FolderScorer)
    settings = GenerateConfig(max_new_tokens=TOKENS, top_k=0, top_p=1.0, temperature=1.0, seed=1)
    return [one.text for (one,) in model.generator.generate([""] * SAMPLES, settings)]


def row(name: str, texts: Sequence[str], known: Sequence[str]) -> dict[str, Any]:
    """The part of a row that the texts which a model has written give."""
    shares = checked(texts, known)
    return {"model": name} | {key: shares[key] for key in ("sentences of the world", "without contradiction", "copied")}


def judged(model: ScoringModel, pairs: Sequence[Pair]) -> dict[str, Any]:
    """The accuracies of a model on minimal pairs, by phenomenon."""
    return {name: asdict(value) for name, value in accuracies(pairs, judge(model, pairs, SETTINGS)).items()}


def measure() -> dict[str, Any]:
    """The scores of all models."""
    held_out, known = [*documents(*HELD_OUT)], [one.text for one in documents(*TRAINING)]
    texts, pairs = [one.text for one in held_out], read_pairs(WORLD)
    source = {"bits per character": sum(one.bits for one in held_out) / sum(map(len, texts)), "minimal pairs": None}
    rows = [row(SOURCE, texts[:SAMPLES], known) | source]
    grammar = {}
    folders = {"gpt2": pretrain.GPT2.path() / "model", "gptsan": gptsan.BASE.path() / "model"}
    models: dict[str, ScoringModel] = {name: open_model(folder) for name, folder in folders.items()}
    for name, model in (models | {TRIGRAM: Trigram(known)}).items():
        cost = bits(model, texts, SETTINGS).bits_per_character
        found = {"bits per character": cost, "minimal pairs": judged(model, pairs)}
        rows.append(row(name, written(model), known) | found)
        if name != "gptsan":
            grammar[name] = judged(model, read_pairs(GRAMMAR))["all"]
    sizes = {"documents": len(held_out), "characters": sum(map(len, texts)), "samples": SAMPLES}
    return {**sizes, "grammar": grammar, "models": rows}


def table(scores: Mapping[str, Any]) -> str:
    """README's table."""
    titles = ["model of profile `tiny`", "bits per character", "sentences of the world [%]"]
    titles += ["texts without a contradiction [%]", "near facts [%]", "far facts [%]"]
    lines = [f"| {' | '.join(titles)} |", f"|---{'|--:' * (len(titles) - 1)}|"]
    for one in scores["models"]:
        pairs = one["minimal pairs"]
        cells = [NAMES[one["model"]], f"{one['bits per character']:.3f}"]
        cells += [f"{100 * one[name]:.0f}" for name in ("sentences of the world", "without contradiction")]
        cells += [shown(pairs[distance]) if pairs else "" for distance in (NEAR, FAR)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "| chance | | | | 50 | 50 |"])


def shown(right: Mapping[str, float]) -> str:
    """An accuracy with its interval [%]."""
    return f"{100 * right['accuracy']:.0f} ({100 * right['low']:.0f}–{100 * right['high']:.0f})"


def in_readme(text: str, rows: str) -> str:
    """README's text with another table."""
    before, rest = text.split(BEGIN_TABLE)
    return f"{before}{BEGIN_TABLE}\n\n{rows}\n\n{END_TABLE}{rest.split(END_TABLE)[1]}"


def main() -> None:
    assert {NEAR, FAR} <= DISTANCES.keys()
    scores = measure()
    SCORES.write_text(json.dumps(scores, ensure_ascii=False, indent=1) + "\n", encoding="utf8")
    rows = table(scores)
    README.write_text(in_readme(README.read_text(encoding="utf8"), rows), encoding="utf8")
    print(rows)


if __name__ == "__main__":
    main()
