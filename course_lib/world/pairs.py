"""Minimal pairs: a document up to a sentence that repeats a fact, and the same with another value of the fact."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from course_lib.world.check import check
from course_lib.world.genre import Document
from course_lib.world.genres import documents

# By name the distances of the pairs that are judged together, and the seed of their documents: no corpus has it.
DISTANCES = {
    "distance 0": range(1),
    "distance 1-19": range(1, 20),
    "distance 20-39": range(20, 40),
    "distance 40-": range(40, 1000),
}
SEED = 504


@dataclass(frozen=True)
class Pair:
    """The beginning of a document, and the same with another value of a fact in the last sentence.

    `distance` is the number of characters between the last sentence but this one that states the fact, and this one.
    """

    good: str
    bad: str
    fact: str
    distance: int


def pairs(document: Document, rng: random.Random) -> Iterator[Pair]:
    """Yield a pair for each sentence of a document and each fact in it that an earlier sentence states."""
    before, stated = "", dict[str, int]()
    verdict = check(document.text)
    for sentence, reading in zip(verdict.sentences, verdict.readings, strict=True):
        assert reading
        for fact, value in reading.facts.items():
            if fact in stated:
                wrong = rng.choice([other for other in reading.genre.known.values[fact] if other != value])
                bad = before + reading.wording.format(**reading.facts | {fact: wrong})
                yield Pair(before + sentence, bad, fact, len(before) - stated[fact])
        before += sentence
        stated |= dict.fromkeys(reading.facts, len(before))


def by_distance(each: int = 120) -> list[tuple[str, Pair]]:
    """Return as many pairs for each range of distances, with the range's name; at most one of a document."""
    rng, drawn = random.Random(SEED), documents(100 * each, SEED)
    found: dict[str, list[Pair]] = {name: [] for name in DISTANCES}
    while missing := [name for name in DISTANCES if len(found[name]) < each]:
        candidates = [*pairs(next(drawn), rng)]
        wanted = [(name, pair) for name in missing for pair in candidates if pair.distance in DISTANCES[name]]
        if wanted:
            name, pair = rng.choice(wanted)
            found[name].append(pair)
    return [(name, pair) for name, several in found.items() for pair in several]
