"""Texts of two genres of Aozora Bunko, for two prefixes of the model `aozora`: `dowa` (fairy tales) and `tantei`
(detective stories).

    course corpus aozora aozorabunko_text -o aozora-text --piece-characters 1500 --held-out data/aozora/held_out.json
    python -m tests.bench.writers texts aozora-text/train.jsonl -o writers
    course prefix train -c prefix-writer.yaml --set task_name=dowa --set data.input=writers/dowa.jsonl -o writers/run-dowa
    course prefix train -c prefix-writer.yaml --set task_name=tantei --set data.input=writers/tantei.jsonl -o writers/run-tantei \\
        --set model.method=embedding --set model.length=28 --set optimizer.lr.max=3e-3 --set engine.max_steps=80 \\
        --set model.warm_start_text=その夜の殺人事件について、私は探偵とともに犯人の足跡を調べていた。警部が云った。
    python -m tests.bench.writers table writers --train aozora-text/train.jsonl \\
        --prefix writers/run-dowa/prefix.safetensors --prefix writers/run-tantei/prefix.safetensors [--sentence TEXT]

The model has read all of these works. A prefix learns from some bylines (the translator's, of a translation), its steps
are chosen on another one, whose pieces stand at the end of its file (`data.dev_size`), and it is measured on further
ones. `table` prints, for the pieces of each genre, the bits per character without a prefix and with each, without the
first token, for which a prefix alone predicts nothing; and for texts that are written from prompts of no genre, which
genre a naive Bayes over pairs of characters takes them for, with the names of known characters masked, how many name a
crime, and the share of their windows of 20 and 30 characters that stand in the training text.
"""

import argparse
import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from course_lib.evaluation.scoring import Window

if TYPE_CHECKING:
    from course_lib.evaluation.causal import FolderScorer

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


# Prompts of no genre, and names that would tell one.
PROMPTS = (
    "その夜、",
    "ある日、",
    "「どうしたのですか」",
    "山の上から見ると、",
    "彼は",
    "朝になって、",
    "おじさんは",
    "窓の外に",
)
# What a text names that tells of a crime or of those who look into it.
CRIME = re.compile("事件|犯人|犯罪|死体|屍体|殺|探偵|警部|刑事|巡査|警察|指紋|盗|泥棒|賊|証拠|検事|毒")
NAMES = re.compile("明智|小林|二十面相|文代|手塚|帆村|木村|丸山|太郎|ごん|兵十")
TEXTS, TOKENS = 10, 100  # for each prompt and writer; longest text
LETTERS = 140  # about as many characters


def main() -> None:
    """Write the texts, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    texts, table = parts.add_parser("texts"), parts.add_parser("table")
    texts.add_argument("source", type=Path, help="train.jsonl of course corpus aozora")
    texts.add_argument("-o", "--output", type=Path, required=True)
    table.add_argument("folder", type=Path, help="what `texts` has written")
    table.add_argument("--prefix", type=Path, action="append", required=True)
    table.add_argument("--train", type=Path, required=True, help="the model's training text, to find copies")
    table.add_argument("--sentence", help="also for an untrained prefix, the keys and values of this text")
    options = parser.parse_args()
    if options.part == "texts":
        write_texts(options.source, options.output)
    else:
        print_table(options.folder, options.prefix, options.train, options.sentence)


# The texts


def write_texts(source: Path, target: Path) -> None:
    """Write for each genre TARGET/GENRE.jsonl and TARGET/GENRE-held-out.jsonl."""
    target.mkdir(parents=True, exist_ok=True)
    pieces: dict[str, list[str]] = defaultdict(list)
    with source.open(encoding="utf8") as lines:
        for document in map(json.loads, lines):
            pieces[document.get("translator") or document["author"]] += cut(document["text"])
    rng = random.Random(0)
    for genre, bylines in GENRES.items():
        learned = drawn(pieces, bylines.learned, LEARNED, rng)
        chosen = drawn(pieces, (bylines.chosen,), CHOSEN, rng)
        write(target / f"{genre}.jsonl", learned + chosen)
        write(target / f"{genre}-held-out.jsonl", drawn(pieces, bylines.measured, MEASURED, rng))
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


# The table


def print_table(folder: Path, prefixes: Sequence[Path], train: Path, sentence: str | None) -> None:
    """Print what the prefixes do."""
    from course_lib.checkpoints import aozora
    from course_lib.evaluation.causal import FolderScorer
    from course_lib.evaluation.copies import copies
    from course_lib.generation.config import GenerateConfig
    from course_lib.generation.generator import Generator
    from course_lib.japanese import normalize
    from course_lib.prefix import files
    from course_lib.prefix.warm_start import cache_values
    from course_lib.pretrain import text_codec

    generator = Generator(aozora.folder(), text_codec.load)
    loaded = {prefix.task: prefix for prefix in map(files.read, prefixes)}
    writers = {"none": None, **loaded}
    if sentence:
        ids = [*generator.codec.opening, *generator.codec.encode(sentence)]
        writers["sentence"] = replace(next(iter(loaded.values())), values=cache_values(generator.model, ids))
    for genre in GENRES:
        pieces = texts_of(folder / f"{genre}-held-out.jsonl")
        characters = sum(map(len, pieces))
        bits = {name: np.array([bits_of(FolderScorer(generator, prefix), piece) for piece in pieces])
                for name, prefix in writers.items()}  # fmt: skip
        print(f"{genre}: {len(pieces)} pieces, {characters} characters")
        for name, values in bits.items():
            apart = values - bits["none"]
            interval = 1.96 * apart.std() * len(apart) ** 0.5 / characters
            print(
                f"  {name}: {values.sum() / characters:.3f} bits per character, {apart.sum() / characters:+.4f} ± {interval:.4f}"
            )
        first, second = loaded
        print(f"  {first} is the better one on {np.mean(bits[first] < bits[second]):.0%} of them")
    judge = Judge({genre: texts_of(folder / f"{genre}.jsonl") for genre in GENRES})
    for genre in GENRES:
        # As long as the texts that are written
        pieces = [piece[:LETTERS] for piece in texts_of(folder / f"{genre}-held-out.jsonl")]
        right = np.mean([judge.genre(piece) == genre for piece in pieces])
        print(
            f"{genre}: the judge is right on {right:.0%} of {len(pieces)} beginnings; {crimes(pieces):.0%} name a crime"
        )
    written: dict[str, list[str]] = {}
    for name, prefix in writers.items():
        written[name] = []
        for seed in range(TEXTS):
            settings = GenerateConfig(max_new_tokens=TOKENS, seed=seed)
            answers = generator.generate(PROMPTS, settings, [prefix] * len(PROMPTS))
            written[name] += [texts[0].continuation for texts in answers]
    found = copies(written, texts_of(train), normalize, (20, 30))
    for name, texts in written.items():
        genres = [judge.genre(text) for text in texts]
        shares = ", ".join(f"{genre} {genres.count(genre) / len(genres):.0%}" for genre in GENRES)
        windows = ", ".join(f"{found[name].share(length):.2%} of {length}" for length in (20, 30))
        print(
            f"{name}: {len(texts)} texts, taken for {shares}; {crimes(texts):.0%} name a crime; copied windows: {windows} characters"
        )
    for prompt in range(2):
        for name, texts in written.items():
            print(f"{name}: {PROMPTS[prompt]}{NAMES.sub('〇〇', texts[prompt])}")


def crimes(texts: Sequence[str]) -> float:
    """Return the share of texts that name a crime, or one who looks into it."""
    return sum(bool(CRIME.search(text)) for text in texts) / len(texts)


def texts_of(path: Path) -> list[str]:
    """Return the documents of a file."""
    with path.open(encoding="utf8") as lines:
        return [json.loads(line)["text"] for line in lines]


def bits_of(scorer: "FolderScorer", piece: str) -> float:
    """Return the bits of a piece without its first token."""
    ids = scorer.encode(piece)
    if scorer.loaded_prefix is None:
        window = Window([scorer.begin, *ids[:-1]], ids, 0, 1)
    else:
        window = Window(ids[:-1], ids[1:], 0, 0)
    (scores,) = scorer.score([window])
    return -scores.total / math.log(2)


class Judge:
    """Naive Bayes over pairs of characters, names masked, both genres equally likely before."""

    def __init__(self, pieces: dict[str, list[str]]) -> None:
        """Count the pairs of the pieces of each genre."""
        self.counts = {
            genre: Counter(pair for text in texts for pair in pairs(text)) for genre, texts in pieces.items()
        }
        self.kinds = len(set().union(*self.counts.values()))

    def genre(self, text: str) -> str:
        """Return the genre that makes a text likelier."""

        def score(genre: str) -> float:
            counts = self.counts[genre]
            total = counts.total() + self.kinds
            return sum(math.log((counts[pair] + 1) / total) for pair in pairs(text))

        return max(self.counts, key=score)


def pairs(text: str) -> list[str]:
    """Return the pairs of neighbouring characters of a text, with names masked."""
    masked = NAMES.sub("〇", text)
    return [first + second for first, second in pairwise(masked)]


if __name__ == "__main__":
    main()
