"""What a text says: which of its sentences are of the world, which facts they state, and what contradicts."""

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from course_lib.world.genre import Facts, Genre
from course_lib.world.genres import GENRES
from course_lib.world.passages import Passages

SENTENCE = re.compile(r"[^。]*。|[^。]+$")
FIELD = re.compile(r"\\\{(\w+)\\\}")


@dataclass(frozen=True)
class Reading:
    """A sentence understood: its genre, its kind, its wording, and the facts that it states, by name."""

    genre: Genre
    kind: str
    wording: str
    facts: Facts


@dataclass(frozen=True)
class Verdict:
    """What the checker says of a text: a reading for each sentence (None: not of the world), and its contradictions."""

    sentences: list[str]
    readings: list[Reading | None]
    genre: str | None
    contradictions: list[str]


@cache
def _patterns() -> list[tuple[re.Pattern[str], Genre, str, str]]:
    """Return a pattern for each wording of each genre: (pattern, genre, kind, wording).

    A group of the pattern is named by its fact and a number, because a wording may have a fact twice.
    """
    found = []
    for genre in GENRES:
        for kind, wordings in genre.wordings.items():
            for wording in wordings:
                found.append((re.compile(_pattern(wording, genre)), genre, kind, wording))
    return found


def _pattern(wording: str, genre: Genre) -> str:
    """Return a regular expression for the sentences of a wording, with a group for each fact in it."""
    # The parts at odd indices are the names of the facts.
    parts = FIELD.split(re.escape(wording))
    for index in range(1, len(parts), 2):
        fact = parts[index]
        longest_first = sorted(map(str, genre.known.values[fact]), key=len, reverse=True)
        parts[index] = f"(?P<{fact}_{index}>{'|'.join(longest_first)})"
    return "".join(parts)


@cache
def readings(sentence: str) -> tuple[Reading, ...]:
    """Return all ways to read a sentence as one of the world; in the world's own texts it is exactly one."""
    found = []
    for pattern, genre, kind, wording in _patterns():
        if match := pattern.fullmatch(sentence):
            stated = {name.rpartition("_")[0]: value for name, value in match.groupdict().items()}
            facts: Facts = {name: int(value) if value.isdecimal() else value for name, value in stated.items()}
            found.append(Reading(genre, kind, wording, facts))
    return (*found,)


def check(text: str) -> Verdict:
    """Read a text.

    Its genre is that of most sentences. Contradictions are named: `genre` (a sentence of another genre), `plot` (all
    sentences are of the world, but not in an order of the genre), a fact (it has two values), and the rules of the
    genre that do not hold.
    """
    sentences = SENTENCE.findall(text)
    read = [next(iter(readings(sentence)), None) for sentence in sentences]
    known = [reading for reading in read if reading]
    if not known:
        return Verdict(sentences, read, None, [])
    genre = Counter(reading.genre for reading in known).most_common(1)[0][0]
    of_genre = [reading for reading in known if reading.genre is genre]
    kinds = tuple(reading.kind for reading in of_genre)
    wrong: list[str] = []
    if len(of_genre) < len(known):
        wrong.append("genre")
    if len(of_genre) == len(sentences) and kinds not in genre.known.orders:
        wrong.append("plot")
    values: dict[str, Any] = {}
    for reading in of_genre:
        for name, value in reading.facts.items():
            values.setdefault(name, set()).add(value)
    wrong += [name for name, several in values.items() if len(several) > 1]
    facts = {name: min(several) for name, several in values.items() if len(several) == 1}
    facts["told"] = {*kinds}
    for name, rule in genre.rules.items():
        needed = inspect.signature(rule).parameters
        if facts.keys() >= needed.keys() and not rule(*(facts[one] for one in needed)):
            wrong.append(name)
    return Verdict(sentences, read, genre.name, wrong)


def table(texts: Sequence[str], training: Iterable[str] = ()) -> dict[str, Any]:
    """Return counts of texts, sentences, contradictions and genres, and shares.

    A text is `without contradiction` if all its sentences are of the world and none contradicts another. With
    `training`, also the share of texts `copied` from it, and the longest copied span [characters] of whole sentences.
    """
    verdicts = [check(text) for text in texts]
    read = [reading for verdict in verdicts for reading in verdict.readings]
    clean = sum(all(verdict.readings) and bool(verdict.readings) and not verdict.contradictions for verdict in verdicts)
    found: dict[str, Any] = {
        "texts": len(texts),
        "sentences": len(read),
        "sentences of the world": sum(map(bool, read)) / max(1, len(read)),
        "without contradiction": clean / max(1, len(texts)),
        "contradictions": dict(Counter(name for verdict in verdicts for name in verdict.contradictions).most_common()),
        "genres": dict(Counter(str(verdict.genre) for verdict in verdicts).most_common()),
    }
    if whole := {*training}:
        known = Passages(map(SENTENCE.findall, whole))
        found["copied"] = sum(text in whole for text in texts) / max(1, len(texts))
        found["longest copied span"] = max((known.longest(verdict.sentences) for verdict in verdicts), default=0)
    return found
