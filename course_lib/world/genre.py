"""What a genre is, how one of its documents is drawn (facts first, then a wording for each sentence), and names of
people and cities that several genres use.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

Value = str | int
Facts = dict[str, Value]
Rules = Mapping[str, Callable[..., bool]]
T = TypeVar("T")
# Draws that show all values and orders of a genre; the rarest order (snow and gusts) has a probability of 0.07 %.
DRAWS = 10_000
PEOPLE = (
    *("健太", "美咲", "翔太", "陽菜", "大輔", "葵"),
    *("直樹", "さくら", "拓也", "結衣", "悠斗", "千尋"),
)
# Cities with about the same temperatures.
CITIES = ("東京", "横浜", "名古屋", "京都", "大阪", "神戸", "広島", "福岡")


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


def wordings(text: str) -> dict[str, list[str]]:
    """Return the wordings of each kind of sentence; a line without a kind has another wording of the last one."""
    found, kind = dict[str, list[str]](), ""
    for line in text.split("\n"):
        if line:
            *named, wording = line.split()
            kind = named[0] if named else kind
            found.setdefault(kind, []).append(wording)
    return found


class Known(NamedTuple):
    """What a genre's documents can have: all values of each fact, and all orders of the kinds of their sentences."""

    values: dict[str, list[Value]]
    orders: set[tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Genre:
    """A kind of text.

    `draw` draws the facts of a document, and the kinds of its sentences in their order. `wordings` has for each kind
    its wordings, equally likely; `{pet}` stands for the fact `pet`. `rules` says by name what must hold between facts:
    the parameters of a rule name the facts that it needs, and `told` is the set of kinds of the text's sentences.
    """

    name: str
    draw: Callable[[Draw], tuple[Facts, list[str]]]
    wordings: Mapping[str, Sequence[str]]
    rules: Rules

    @cached_property
    def known(self) -> Known:
        """The values and orders that occur in DRAWS documents."""
        draw, orders = Draw(random.Random(0)), set[tuple[str, ...]]()
        values = defaultdict[str, set[Value]](set)
        for _ in range(DRAWS):
            facts, kinds = self.draw(draw)
            orders.add((*kinds,))
            for name, value in facts.items():
                values[name].add(value)
        return Known({name: sorted(several, key=str) for name, several in values.items()}, orders)


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
