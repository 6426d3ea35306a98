"""Minimal pairs: a document up to a sentence that repeats a fact, and the same with another value of the fact."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from course_lib.world.check import check
from course_lib.world.genre import Document


@dataclass(frozen=True)
class Pair:
    """Two texts that differ in one value.

    Attributes:
        good: the document's beginning.
        bad: the same, but its last sentence contradicts an earlier one.
        fact: the fact whose value differs.
        distance: characters between the end of the last sentence that states the fact and the sentence that breaks it.
    """

    good: str
    bad: str
    fact: str
    distance: int


def pairs(document: Document, rng: random.Random) -> Iterator[Pair]:
    """Yield a pair for each sentence of a document and each fact in it that an earlier sentence states."""
    verdict = check(document.text)
    for place, reading in enumerate(verdict.readings):
        if reading is None:
            continue
        before, sentence = verdict.sentences[:place], verdict.sentences[place]
        for fact, value in reading.facts.items():
            told = [number for number, other in enumerate(verdict.readings[:place]) if other and fact in other.facts]
            if told:
                wrong = rng.choice([other for other in reading.genre.values[fact] if other != value])
                bad = reading.wording.format(**reading.facts | {fact: wrong})
                distance = sum(map(len, before[told[-1] + 1 :]))
                yield Pair("".join([*before, sentence]), "".join([*before, bad]), fact, distance)
