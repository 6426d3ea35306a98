"""What a text says: which of its sentences are of the world, which facts they state, and what contradicts."""

import inspect
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from course_lib.world.genre import Draw, Facts, Genre, Value
from course_lib.world.genres import GENRES

SENTENCE = re.compile(r"[^。]*。|[^。]+$")
FIELD = re.compile(r"\\\{(\w+)\\\}")
# Draws of a genre that show all orders of its sentences; the rarest (snow and gusts) has a probability of about 0.1 %.
PLOTS = 20_000


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


def _pattern(wording: str, genre: Genre) -> re.Pattern[str]:
    """Return what matches the sentences of a wording. Groups have a fact's name and a number: a fact may come twice."""
    parts = FIELD.split(re.escape(wording))
    for place in range(1, len(parts), 2):
        values = sorted(map(str, genre.values[parts[place]]), key=len, reverse=True)
        parts[place] = f"(?P<{parts[place]}_{place}>{'|'.join(values)})"
    return re.compile("".join(parts))


@cache
def _patterns() -> list[tuple[re.Pattern[str], Genre, str, str]]:
    return [
        (_pattern(wording, genre), genre, kind, wording)
        for genre in GENRES
        for kind, wordings in genre.wordings.items()
        for wording in wordings
    ]


@cache
def _plots(genre: str) -> set[tuple[str, ...]]:
    """Return the orders that the kinds of a genre's sentences can have."""
    drawn = next(one for one in GENRES if one.name == genre).draw
    return {tuple(drawn(Draw(random.Random(seed)))[1]) for seed in range(PLOTS)}


@cache
def readings(sentence: str) -> tuple[Reading, ...]:
    """Return all ways to read a sentence as one of the world; in the world's own texts it is exactly one."""
    found = []
    for pattern, genre, kind, wording in _patterns():
        if match := pattern.fullmatch(sentence):
            facts = {name.rpartition("_")[0]: _value(value) for name, value in match.groupdict().items()}
            found.append(Reading(genre, kind, wording, facts))
    return tuple(found)


def _value(text: str) -> Value:
    return int(text) if text.isdecimal() else text


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
    genre = Counter(reading.genre.name for reading in known).most_common(1)[0][0]
    own = [reading for reading in known if reading.genre.name == genre]
    wrong = ["genre"] * (len(own) < len(known))
    told = tuple(reading.kind for reading in own)
    if len(own) == len(sentences) and told not in _plots(genre):
        wrong.append("plot")
    stated = [pair for reading in own for pair in reading.facts.items()]
    values = {name: {value for other, value in stated if other == name} for name, _ in stated}
    wrong += [name for name, several in values.items() if len(several) > 1]
    facts: dict[str, Any] = {name: min(several, key=str) for name, several in values.items() if len(several) == 1}
    facts["told"] = {*told}
    for name, rule in own[0].genre.rules.items():
        needed = inspect.signature(rule).parameters
        if facts.keys() >= needed.keys() and not rule(*(facts[one] for one in needed)):
            wrong.append(name)
    return Verdict(sentences, read, genre, wrong)


def table(texts: Sequence[str], training: Iterable[str] = ()) -> dict[str, Any]:
    """Return the world's table for texts.

    Returns:
        `texts`; `sentences`, and the share of them that are `sentences of the world`; the share of texts `without
        contradiction` (all their sentences are of the world, and none contradicts another); `genres` and
        `contradictions`, counted by kind. With `training`: the share of texts `copied` from it, and the `longest copied
        span` in characters, of whole sentences in a row.
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
        known = {span for text in whole for span in _spans(SENTENCE.findall(text))}
        found["copied"] = sum(text in whole for text in texts) / max(1, len(texts))
        copied = (len(span) for verdict in verdicts for span in _spans(verdict.sentences) if span in known)
        found["longest copied span"] = max(copied, default=0)
    return found


def _spans(sentences: list[str]) -> Iterable[str]:
    """Yield all texts of sentences in a row."""
    for start in range(len(sentences)):
        for end in range(start + 1, len(sentences) + 1):
            yield "".join(sentences[start:end])
