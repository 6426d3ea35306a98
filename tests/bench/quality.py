"""Does the learned score help? Labels by hand against the score, then a small GPT-2 on filtered text.

    python -m tests.bench.quality

Web documents are scored by cross-fitting in 5 folds: no document is scored by a classifier that it trained.
The GPT-2 (2 layers, width 128, characters as tokens) trains 250 steps on equal numbers of characters of the best
documents by score, of random ones, and of the first ones in the file (unfiltered); three seeds. The bundled web text
is small: each part has about 25,000 characters, so every model reads its part about 10 times.
"""

import csv
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
from course_lib.corpus.quality import train_quality
from course_lib.corpus.webtext import clean_webtext
from course_lib.corpus.wikipedia import extract
from course_lib.paths import data

FOLDS, HELD_OUT, STEPS, WIDTH, BATCH, LENGTH = 5, 40, 250, 128, 8, 128


def documents() -> tuple[list[str], dict[str, str]]:
    """Return the encyclopedia's texts, and the cleaned web texts by id."""
    with tempfile.TemporaryDirectory() as folder:
        wiki, web = Path(folder, "wiki.jsonl"), Path(folder, "web.jsonl")
        extract([data("jawiki-sample.xml.bz2")], wiki)
        clean_webtext(data("webtext-sample.txt.xz"), web)
        rows = [[orjson.loads(line) for line in path.read_bytes().splitlines()] for path in (wiki, web)]
    return [row["text"] for row in rows[0]], {row["id"]: row["text"] for row in rows[1]}


def cross_fitted(wiki: list[str], web: dict[str, str]) -> dict[str, float]:
    """Return the score of each web text by a classifier that has not seen it."""
    scores: dict[str, float] = {}
    for fold in range(FOLDS):
        rest = [text for at, text in enumerate(web.values()) if at % FOLDS != fold]
        quality = train_quality(wiki, rest)
        scores |= {name: quality.score(text) for at, (name, text) in enumerate(web.items()) if at % FOLDS == fold}
    return scores


def interval(right: int, number: int) -> str:
    """Return a share in percent with Wilson's 95 % interval."""
    share, z = right / number, 1.96
    centre, scale = share + z * z / 2 / number, 1 + z * z / number
    half = z * np.sqrt(share * (1 - share) / number + z * z / 4 / number**2)
    return f"{100 * share:.0f} ({100 * (centre - half) / scale:.0f}–{100 * (centre + half) / scale:.0f})"


def agreement(web: dict[str, str], scores: dict[str, float]) -> None:
    """Print how many of the N best documents are labelled 1, where N is the number of such labels."""
    rows = csv.DictReader(data("quality-labels.csv").read_text(encoding="utf8").splitlines())
    labels = {row["id"]: int(row["label"]) for row in rows}
    good = sum(labels.values())
    keys: dict[str, Callable[[str], float]] = {"score": scores.__getitem__, "length": lambda name: len(web[name])}
    for title, key in keys.items():
        best = sorted(labels, key=key, reverse=True)[:good]
        print(f"| {title} | {interval(sum(labels[name] for name in best), good)} |")
    print(f"| random | {interval(good, len(labels))} |")


def train_and_measure(text: str, held_out: dict[str, str], vocabulary: dict[str, int], seed: int) -> dict[str, float]:
    """Train a GPT-2 on a text and return the bits per character on each held-out text."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=len(vocabulary), n_positions=LENGTH, n_embd=WIDTH, n_layer=2, n_head=4)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    ids = torch.tensor([vocabulary[character] for character in text])
    for _ in range(STEPS):
        starts = torch.randint(len(ids) - LENGTH, (BATCH,))
        batch = torch.stack([ids[start : start + LENGTH] for start in starts])
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
    model.eval()
    bits = {}
    with torch.no_grad():
        for name, other in held_out.items():
            tokens = torch.tensor([vocabulary[character] for character in other])
            windows = tokens[: len(tokens) // LENGTH * LENGTH].view(-1, LENGTH)
            losses = [model(input_ids=part, labels=part).loss.item() * len(part) for part in windows.split(16)]
            bits[name] = sum(losses) / len(windows) / float(np.log(2))
    return bits


def main() -> None:
    """Print both tables."""
    wiki, web = documents()
    agreement(web, cross_fitted(wiki, web))
    rng = np.random.default_rng(1)
    names = list(web)
    apart = {names[at] for at in rng.permutation(len(names))[:HELD_OUT]}
    pool = {name: text for name, text in web.items() if name not in apart}
    held_out = {
        "encyclopedia": "\n".join(wiki[:HELD_OUT]),
        "web": "\n".join(web[name] for name in names if name in apart),
    }
    scores = cross_fitted(wiki[HELD_OUT:], pool)
    size = sum(map(len, pool.values())) * 2 // 5
    characters = sorted({character for text in (*wiki, *web.values()) for character in text} | {"\n"})
    vocabulary = {character: at for at, character in enumerate(characters)}
    print(f"{size} characters for each run, {len(vocabulary)} tokens")
    found: dict[str, list[dict[str, float]]] = {}
    for seed in (1, 2, 3):
        shuffled = np.random.default_rng(seed).permutation(list(pool)).tolist()
        orders = {
            "filtered": sorted(pool, key=scores.__getitem__, reverse=True),
            "random": shuffled,
            "unfiltered": list(pool),
        }
        for kind, order in orders.items():
            text = "\n".join(pool[name] for name in order)[:size]
            found.setdefault(kind, []).append(train_and_measure(text, held_out, vocabulary, seed))
    for kind, runs in found.items():
        cells = (", ".join(f"{run[name]:.3f}" for run in runs) for name in held_out)
        means = (f"{np.mean([run[name] for run in runs]):.3f}" for name in held_out)
        print(f"| {kind} | " + " | ".join(f"{mean} ({each})" for mean, each in zip(means, cells, strict=True)) + " |")


if __name__ == "__main__":
    main()
