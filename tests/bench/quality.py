"""Does the learned score help? Labels by hand against the score, then small models on the texts it prefers.

    python -m tests.bench.quality [BOOKS.txt.xz DUMP.xml.bz2]

Documents are scored by cross-fitting: no document is scored by a classifier that it trained. A model reads parts of
equal size of a pool: the third with the best scores, a random third, the first third of the file (unfiltered); three
seeds. The pool is the bundled web text, and the model a GPT-2 (2 layers, width 128, characters as tokens, a plain loop:
the course's trainer would take longer to start than this model to train). A third has 20,000 characters, which it reads
13 times; a fourth arm reads as many tokens of all the text. With BOOKS and DUMP a second pool is a text of books
(.txt.xz, a paragraph a line), 44 times as large; its model is the course's character trigram model, since a GPT-2
would take an hour; its held-out texts are the articles of the dump and the bundled web text.

Writes course_lib/corpus/quality.csv, which chapter 1 shows.
"""

import csv
import lzma
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import orjson
from course_lib.corpus.quality import cross_fitted
from course_lib.corpus.webtext import clean_webtext
from course_lib.corpus.wikipedia import extract
from course_lib.evaluation.trigram import Trigram
from course_lib.paths import data

HELD_OUT, WIDTH, BATCH, LENGTH, SEEDS, PIECE = 40, 128, 8, 128, (1, 2, 3), 1000
STEPS = 250
PARTS = ("best third", "random third", "first third", "all")
TABLE = Path(__file__).parents[2] / "course_lib" / "corpus" / "quality.csv"


def encyclopedia(dump: Path) -> list[str]:
    """Return the articles of a dump."""
    with tempfile.TemporaryDirectory() as folder:
        extract([dump], Path(folder, "wiki.jsonl"))
        return [orjson.loads(line)["text"] for line in Path(folder, "wiki.jsonl").read_bytes().splitlines()]


def web_texts() -> dict[str, str]:
    """Return the bundled web texts that pass the nine filters, by id."""
    with tempfile.TemporaryDirectory() as folder:
        clean_webtext(data("webtext-sample.txt.xz"), Path(folder, "web.jsonl"))
        rows = map(orjson.loads, Path(folder, "web.jsonl").read_bytes().splitlines())
        return {row["id"]: row["text"] for row in rows}


def book_pieces(path: Path) -> list[str]:
    """Return the paragraphs of books as pieces of at least PIECE characters."""
    pieces = [""]
    with lzma.open(path, "rt", encoding="utf8", errors="ignore") as file:
        for line in file:
            pieces[-1] += line
            if len(pieces[-1]) >= PIECE:
                pieces.append("")
    return pieces


def interval(right: int, number: int) -> str:
    """Return a share in percent with Wilson's 95 % interval."""
    share, z = right / number, 1.96
    centre, scale = share + z * z / 2 / number, 1 + z * z / number
    half = z * np.sqrt(share * (1 - share) / number + z * z / 4 / number**2)
    return f"{100 * share:.0f} ({100 * (centre - half) / scale:.0f}–{100 * (centre + half) / scale:.0f})"


def agreement(web: dict[str, str], scores: dict[str, float]) -> None:
    """Print Cohen's kappa of the two labellings, and how many of the N best documents are labelled 1.

    N is the number of documents labelled 1, so that precision equals recall.
    """
    rows = list(csv.DictReader(data("quality-labels.csv").read_text(encoding="utf8").splitlines()))
    labels = {row["id"]: int(row["label"]) for row in rows}
    good, number = sum(labels.values()), len(rows)
    earlier = sum(int(row["earlier"]) for row in rows)
    equal = sum(row["label"] == row["earlier"] for row in rows) / number
    chance = (good * earlier + (number - good) * (number - earlier)) / number**2
    print(f"{number} labels, {good} are 1, earlier {earlier}; kappa {(equal - chance) / (1 - chance):.2f}")
    keys: dict[str, Callable[[str], float]] = {"score": scores.__getitem__, "length": lambda name: len(web[name])}
    for title, key in keys.items():
        best = sorted(labels, key=key, reverse=True)[:good]
        print(f"| {title} | {interval(sum(labels[name] for name in best), good)} |")
    print(f"| random | {interval(good, number)} |")


def gpt2_bits(text: str, held_out: dict[str, str], vocabulary: dict[str, int], seed: int) -> dict[str, float]:
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


def trigram_bits(text: str, held_out: dict[str, str]) -> dict[str, float]:
    """Count the trigrams of a text and return the bits per character on each held-out text."""
    model = Trigram([text])
    return {
        name: -float(
            np.mean([np.log2(model.probability(other[at], other[max(0, at - 2) : at])) for at in range(len(other))])
        )
        for name, other in held_out.items()
    }


def compare(pool: Sequence[str], scores: Sequence[float], held_out: dict[str, str], gpt2: bool) -> list[list[object]]:
    """Return a row for each part of the pool: its name, then the bits per character on each held-out text by seed."""
    size = sum(map(len, pool)) // 3
    characters = sorted({character for text in (*pool, *held_out.values()) for character in text} | {"\n"})
    vocabulary = {character: at for at, character in enumerate(characters)}
    print(f"{size} characters in a third, {len(vocabulary)} different ones", flush=True)
    best = sorted(range(len(pool)), key=scores.__getitem__, reverse=True)
    rows: list[list[object]] = []
    for part in PARTS if gpt2 else PARTS[:3]:
        bits = []
        for seed in SEEDS:
            shuffled = np.random.default_rng(seed).permutation(len(pool)).tolist()
            order = {"best third": best, "random third": shuffled}.get(part, range(len(pool)))
            text = "\n".join(pool[at] for at in order)[: None if part == "all" else size]
            bits.append(gpt2_bits(text, held_out, vocabulary, seed) if gpt2 else trigram_bits(text, held_out))
        rows.append([part, *(f"{run[name]:.3f}" for name in held_out for run in bits)])
        means = (f"{np.mean([run[name] for run in bits]):.3f}" for name in held_out)
        print(f"| {part} | " + " | ".join(means) + " | " + " ".join(map(str, rows[-1][1:])) + " |", flush=True)
    return rows


def main() -> None:
    """Print the tables and write the file."""
    wiki, web = encyclopedia(data("jawiki-sample.xml.bz2")), web_texts()
    agreement(web, dict(zip(web, cross_fitted(wiki, list(web.values())), strict=True)))
    texts = [list(web.values())[at] for at in np.random.default_rng(1).permutation(len(web))]
    articles = [wiki[at] for at in np.random.default_rng(1).permutation(len(wiki))]
    apart, pool = set(texts[:HELD_OUT]), [text for text in web.values() if text not in set(texts[:HELD_OUT])]
    held_out = {"encyclopedia": "\n".join(articles[:HELD_OUT]), "web": "\n".join(sorted(apart))}
    tables = {"web": compare(pool, cross_fitted(articles[HELD_OUT:], pool), held_out, gpt2=True)}
    if sys.argv[1:]:
        pieces = book_pieces(Path(sys.argv[1]))
        held_out = {"encyclopedia": "\n".join(encyclopedia(Path(sys.argv[2]))), "web": "\n".join(web.values())}
        held_out = {name: text[:50_000] for name, text in held_out.items()}
        tables["books"] = compare(pieces, cross_fitted(wiki, pieces), held_out, gpt2=False)
    with TABLE.open("w", encoding="utf8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["pool", "part", *(f"{name} {seed}" for name in ("encyclopedia", "web") for seed in SEEDS)])
        writer.writerows([pool, *row] for pool, rows in tables.items() for row in rows)


if __name__ == "__main__":
    main()
