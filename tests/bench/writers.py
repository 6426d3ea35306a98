"""Texts of two genres of Aozora Bunko by their authors, for two prefixes of the model `aozora`: `dowa` and `tantei`.

    course corpus aozora aozorabunko_text -o aozora-text --piece-characters 1500 --held-out data/aozora/held_out.json
    python -m tests.bench.writers aozora-text/train.jsonl -o writers
    course prefix train -c prefix-writer.yaml --set task_name=dowa --set data.input=writers/dowa.jsonl -o writers/run-dowa
    course prefix train -c prefix-writer.yaml --set task_name=tantei --set data.input=writers/tantei.jsonl -o writers/run-tantei
    course evaluate aozora --prefix writers/run-dowa/prefix.safetensors --prefix writers/run-tantei/prefix.safetensors \
        --data writers/dowa-held-out.jsonl

The model has read all of these authors; those that are held out are held out of the prefixes. A prefix learns at most
800 pieces of each author, of at most 390 characters, in random order.

Tried once (30 November 2026, 9 minutes on one core each), bits per character on the authors held out: fairy tales 2.846
without a prefix, 2.855 with dowa, 2.886 with tantei; detective stories 3.047, 3.086, 3.062. Each prefix is better than
the other on its genre, and neither is better than none: they learn their authors.
"""

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

# Genre → authors from whom its prefix learns, and authors on whom it is measured.
GENRES = {
    "dowa": (("小川未明", "新美南吉"), ("宮沢賢治", "鈴木三重吉", "楠山正雄")),
    "tantei": (("江戸川乱歩", "甲賀三郎"), ("小酒井不木", "大阪圭吉", "浜尾四郎")),
}
LONGEST = 390  # characters of a piece: with 20 positions of the prefix it fits into the model's 512
LEARNED, MEASURED = 800, 20  # pieces of each author, at most


def main() -> None:
    """Write for each genre OUT/GENRE.jsonl and OUT/GENRE-held-out.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="train.jsonl of course corpus aozora")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    pieces: dict[str, list[str]] = defaultdict(list)
    with options.source.open(encoding="utf8") as lines:
        for document in map(json.loads, lines):
            if any(document["author"] in authors for genre in GENRES.values() for authors in genre):
                pieces[document["author"]] += cut(document["text"])
    rng = random.Random(0)
    for genre, (learned, measured) in GENRES.items():
        for name, authors, number in ((genre, learned, LEARNED), (f"{genre}-held-out", measured, MEASURED)):
            chosen = []
            for author in authors:
                rng.shuffle(pieces[author])
                chosen += pieces[author][:number]
            rng.shuffle(chosen)
            with (options.output / f"{name}.jsonl").open("w", encoding="utf8") as file:
                file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in chosen)


def cut(text: str) -> Iterator[str]:
    """Yield runs of whole lines with 200 to LONGEST characters; a longer line begins a new run and is left out."""
    piece = ""
    for line in text.split("\n"):
        if len(piece) + 1 + len(line) > LONGEST:
            if len(piece) >= 200:
                yield piece
            piece = ""
        if len(line) <= LONGEST:
            piece = f"{piece}\n{line}" if piece else line
    if len(piece) >= 200:
        yield piece


if __name__ == "__main__":
    main()
