"""Texts of two genres of Aozora Bunko, for two prefixes of the model `aozora`: `dowa` (fairy tales) and `tantei`
(detective stories).

    course corpus aozora aozorabunko_text -o aozora-text --piece-characters 1500 --held-out data/aozora/held_out.json
    python -m tests.bench.writers aozora-text/train.jsonl -o writers
    course prefix train -c prefix-writer.yaml --set task_name=dowa --set data.input=writers/dowa.jsonl -o writers/run-dowa
    course prefix train -c prefix-writer.yaml --set task_name=tantei --set data.input=writers/tantei.jsonl -o writers/run-tantei
    course evaluate aozora --prefix writers/run-dowa/prefix.safetensors --prefix writers/run-tantei/prefix.safetensors \
        --data writers/dowa-held-out.jsonl

The model has read all of these works. A prefix learns from some bylines (the translator's, of a translation), its steps
are chosen on another one, whose pieces stand at the end of its file (`data.dev_size`), and it is measured on further ones.
"""

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST = 390  # characters of a piece: with 20 positions of the prefix it fits into the model's 512
LEARNED, CHOSEN, MEASURED = 150, 80, 60  # pieces of each byline, at most


@dataclass(frozen=True)
class Bylines:
    """Whose works a prefix of a genre learns, is chosen on, and is measured on."""

    learned: tuple[str, ...]
    chosen: str
    measured: tuple[str, ...]


GENRES = {
    "dowa": Bylines(
        learned=("小川未明", "楠山正雄", "楠山正雄訳", "矢崎源九郎訳", "竹久夢二"),
        chosen="鈴木三重吉",
        measured=("宮沢賢治", "新美南吉"),
    ),
    "tantei": Bylines(
        learned=("江戸川乱歩", "甲賀三郎", "平林初之輔", "蘭郁二郎", "妹尾韶夫訳", "三上於莵吉訳"),
        chosen="小酒井不木",
        measured=("大阪圭吉", "浜尾四郎", "酒井嘉七"),
    ),
}


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
            pieces[document.get("translator") or document["author"]] += cut(document["text"])
    rng = random.Random(0)
    for genre, bylines in GENRES.items():
        learned = drawn(pieces, bylines.learned, LEARNED, rng)
        chosen = drawn(pieces, (bylines.chosen,), CHOSEN, rng)
        write(options.output / f"{genre}.jsonl", learned + chosen)
        write(options.output / f"{genre}-held-out.jsonl", drawn(pieces, bylines.measured, MEASURED, rng))
        print(f"{genre}: {len(learned)} pieces to learn, {len(chosen)} to choose the steps on")


def drawn(pieces: dict[str, list[str]], bylines: Sequence[str], most: int, rng: random.Random) -> list[str]:
    """Return at most `most` pieces of each byline, in random order."""
    found = [piece for byline in bylines for piece in rng.sample(pieces[byline], min(most, len(pieces[byline])))]
    rng.shuffle(found)
    return found


def write(path: Path, texts: Sequence[str]) -> None:
    """Write documents as JSON lines."""
    path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts), encoding="utf8")


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
