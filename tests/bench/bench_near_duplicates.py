"""Near duplicates: how many planted copies are found, how many others are taken, and the speed beside the bare rensa calls.

    python -m tests.bench.bench_near_duplicates TEXT [--copies 1500]

TEXT is plain or compressed text, works separated by empty lines (novels do well); without it the bundled web text is used,
which is too small for the speed to mean much. It is cut into documents of 300-1500 characters; those that share a quarter
of their 4-grams with an earlier one (the same work in two editions) are left out by exact comparison, so that whatever is
taken among the rest is a mistake. The copies have 3-8 % of their characters edited, a sentence moved, a header and a footer.
The peer is rensa's own deduplicator fed with Python slices, as its README shows, with the same settings.
"""

import argparse
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from course_lib.corpus.config import DedupConfig
from course_lib.corpus.dedup import band_hashes, signatures
from course_lib.corpus.repeats import near_repeats
from course_lib.files import open_binary
from course_lib.workspace import products as workspace
from rensa import RMinHashDeduplicator

from tests.corpus.planted import near_copy, pieces

BATCH = 400  # documents in a batch, about 1 MB as in the pipeline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="?", help="default: the bundled web text")
    parser.add_argument("--copies", type=int, default=1500, help="planted near duplicates, at most")
    parser.add_argument("--rounds", type=int, default=3, help="timings taken; the best counts")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with open_binary(arguments.text or workspace.data("webtext-sample.txt.xz")) as file:
        text = file.read().decode(errors="replace").replace("\r\n", "\n")
    documents = without_repeats(pieces(text, chance))
    chosen = chance.sample(range(len(documents)), min(arguments.copies, len(documents)))
    texts = documents + [near_copy(documents[at], chance) for at in chosen]
    size = sum(len(each.encode()) for each in texts)
    print(f"{len(documents)} different documents, then {len(chosen)} near copies, {size / 1e6:.1f} MB")
    ours = report("course_lib", search, texts, chosen, size, arguments.rounds)
    bare = report("bare rensa", bare_rensa, texts, chosen, size, arguments.rounds)
    print(f"course_lib / bare rensa: {ours / bare:.2f} x the speed")


def without_repeats(documents: list[str], limit: float = 0.25) -> list[str]:
    """The documents whose exact 4-gram Jaccard with every earlier one stays under `limit`."""
    kept: list[str] = []
    runs: list[set[str]] = []
    where: dict[str, list[int]] = defaultdict(list)
    for document in documents:
        dense = "".join(document.split())
        own = {dense[at : at + 4] for at in range(len(dense) - 3)}
        shared = Counter(other for run in own for other in where[run])
        if all(count < limit * (len(own) + len(runs[other]) - count) for other, count in shared.items()):
            for run in own:
                where[run].append(len(kept))
            kept.append(document)
            runs.append(own)
    return kept


def search(texts: list[str]) -> list[bool]:
    settings = DedupConfig()
    with TemporaryDirectory() as folder:
        columns = [Path(folder, f"band-{band}") for band in range(settings.num_bands)]
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in (*columns, Path(folder, "signatures"))]
            for at in range(0, len(texts), BATCH):
                rows = signatures(texts[at : at + BATCH], settings)
                hashes = band_hashes(rows, settings.num_bands)
                for band, file in enumerate(files[:-1]):
                    file.write(hashes[:, band].tobytes())
                files[-1].write(rows.astype(np.uint8).tobytes())
        needed = settings.similarity * settings.num_perm
        found = near_repeats(columns, Path(folder, "signatures"), (len(texts), settings.num_perm), needed)
    return (found >= 0).tolist()


def bare_rensa(texts: list[str]) -> list[bool]:
    settings = DedupConfig()
    size = settings.ngram
    near = RMinHashDeduplicator(settings.similarity, settings.num_perm, True, settings.num_bands)
    new = near.add_pairs(
        (str(number), [text[at : at + size] for at in range(len(text) - size + 1)]) for number, text in enumerate(texts)
    )
    return [not each for each in new]


def report(
    name: str, run: Callable[[list[str]], list[bool]], texts: list[str], chosen: list[int], size: int, rounds: int
) -> float:
    """Prints what one implementation finds and wrongly takes; returns its speed [MB/s of UTF-8]."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        taken = run(texts)
        seconds.append(time.perf_counter() - started)
    others = len(texts) - len(chosen)
    found, wrong = sum(taken[others:]) / len(chosen), sum(taken[:others]) / others
    speed = size / min(seconds) / 1e6
    print(f"{name:12} found {found:8.3%} of the copies, took {wrong:7.3%} of the others, {speed:5.1f} MB/s on one core")
    return speed


if __name__ == "__main__":
    main()
