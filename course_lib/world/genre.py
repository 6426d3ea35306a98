"""What a genre is, and how one of its documents is drawn: facts first, then a wording for each sentence."""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

Value = str | int
Facts = dict[str, Value]
T = TypeVar("T")


class Draw:
    """Random choices, and the sum of their information: `bits` is −log₂ of the probability of all choices so far."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.bits = rng, 0.0

    def one(self, choices: Iterable[T]) -> T:
        """Return one of the choices, each equally likely: log₂ n bits."""
        options = list(choices)
        self.bits += math.log2(len(options))
        return self.rng.choice(options)

    def happens(self, probability: float) -> bool:
        """Return True with this probability: −log₂ p bits, −log₂(1 − p) for False."""
        yes = self.rng.random() < probability
        self.bits -= math.log2(probability if yes else 1 - probability)
        return yes


@dataclass(frozen=True)
class Genre:
    """A kind of text.

    Attributes:
        name: its name in documents and tables.
        draw: draws the facts of a document, and the kinds of its sentences in their order.
        wordings: for each kind of sentence its wordings, equally likely; `{pet}` stands for the fact `pet`.
        values: all values of each fact.
        rules: by name, what must hold between facts. The parameters of a rule name the facts that it needs; `told` is
            the set of kinds of the text's sentences.
    """

    name: str
    draw: Callable[[Draw], tuple[Facts, list[str]]]
    wordings: Mapping[str, Sequence[str]]
    values: Mapping[str, Sequence[Value]]
    rules: Mapping[str, Callable[..., bool]] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """A text of the world, with what is true in it, and −log₂ of its probability."""

    text: str
    genre: str
    facts: Facts
    bits: float


def write(genres: Sequence[Genre], rng: random.Random) -> Document:
    """Draw a document: its genre, its facts, a wording for each sentence. Genres and wordings are equally likely."""
    draw = Draw(rng)
    genre = draw.one(genres)
    facts, kinds = genre.draw(draw)
    text = "".join(draw.one(genre.wordings[kind]).format(**facts) for kind in kinds)
    return Document(text, genre.name, facts, draw.bits)
