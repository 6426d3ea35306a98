"""MeCab's lattice: the candidate words of a sentence, the costs of their connections, and paths through them.

A path is the words from the start of the sentence on, each of which begins where the word before it ends. Its cost is
the sum of the costs of its words and of their connections. MeCab takes the cheapest path to the end.
Source: Kudo, Yamamoto and Matsumoto 2004, https://aclanthology.org/W04-3230/.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from course_lib.errors import UsageError
from course_lib.japanese import mecab
from course_lib.language.words import tr, tr_noop


class Word(NamedTuple):
    """A candidate word in a lattice. The first and the last one, the start and the end of a sentence, have no text."""

    text: str
    part_of_speech: str
    start: int  # position where the word before ends [characters]
    end: int
    cost: int  # no unit; lower is better
    class_id: int  # what connection costs depend on


class Step(NamedTuple):
    """A word on a path. Costs have no unit; lower is better. The last step is the end of the sentence, ""."""

    word: str
    part_of_speech: str
    cost: int  # of the word itself
    connection: int  # to the word before
    total: int  # from the start of the sentence to the end of this word


# The cost of the connection of two neighboring words.
Connection = Callable[[Word, Word], int]
# Output format of MeCab (https://taku910.github.io/mecab/format.html): the part of speech, byte offsets, cost and class
# of all candidates. In this dictionary, a word has the same class for its left and for its right side.
FIELDS = r"%f[0]\\t%ps\\t%pe\\t%pw\\t%phr\\n"
CANDIDATES = rf"-a -F {FIELDS} -U {FIELDS} -E \\n"


@cache
def _matrix() -> npt.NDArray[np.int16]:
    """Return the dictionary's connection costs, [class of the word, class of the word before]."""
    import jumandic

    path = Path(jumandic.DICDIR) / "matrix.bin"
    before, after = np.fromfile(path, np.uint16, 2).tolist()
    return np.fromfile(path, np.int16, offset=4).reshape(after, before)


def connection(before: Word, word: Word) -> int:
    """Return MeCab's cost of the connection of two neighboring words."""
    return int(_matrix().item(word.class_id, before.class_id))


def candidates(sentence: str) -> list[Word]:
    """Return the words that MeCab considers for a sentence, from left to right, between its start and its end.

    A word that ends inside a character, and what can only follow it, is left out.
    """
    content = sentence.encode()
    byte_offsets = accumulate((len(character.encode()) for character in sentence), initial=0)
    # Byte offset → position [characters].
    position = {offset: index for index, offset in enumerate(byte_offsets)}
    # (start [bytes], end [bytes], part of speech, cost, class) of each candidate.
    entries: list[tuple[int, int, str, int, int]] = []
    for line in mecab.tagger(CANDIDATES).parse(sentence).split("\n"):
        if line:
            part_of_speech, *numbers = line.split("\t")
            start, end, cost, class_id = map(int, numbers)
            entries.append((start, end, part_of_speech, cost, class_id))
    words = [Word("", "", 0, 0, 0, 0)]
    # Positions at which a candidate ends that can be reached from the start of the sentence.
    reached = {0}
    for start, end, part_of_speech, cost, class_id in sorted(entries):
        # MeCab skips spaces before a word.
        before = position.get(len(content[:start].rstrip()))
        if before in reached and start in position and end in position:
            text = content[start:end].decode()
            words.append(Word(text, part_of_speech, before, position[end], cost, class_id))
            reached.add(position[end])
    return [*dict.fromkeys(words), Word("", "", len(sentence.rstrip()), len(sentence) + 1, 0, 0)]


def cheapest_paths(words: Sequence[Word], connection: Connection = connection) -> dict[Word, tuple[int, Word | None]]:
    """Return, for each candidate, the cost of the cheapest path to its end and the word before it on this path.

    Args:
        words: the candidates from left to right, as `candidates` returns them; those without a path to them are left
            out of the result.
        connection: the cost of a connection.
    """
    best: dict[Word, tuple[int, Word | None]] = {words[0]: (0, None)}
    ending: dict[int, list[Word]] = {words[0].end: [words[0]]}
    for word in words[1:]:
        if before := ending.get(word.start):
            costs = [best[each][0] + connection(each, word) + word.cost for each in before]
            best[word] = min(costs), before[costs.index(min(costs))]
            ending.setdefault(word.end, []).append(word)
    return best


def path_to(word: Word, best: dict[Word, tuple[int, Word | None]]) -> list[Word]:
    """Return the cheapest path to a word, by the result of `cheapest_paths`."""
    before = best[word][1]
    return [*path_to(before, best), word] if before else [word]


def path_through(words: Sequence[str]) -> list[Word]:
    """Return the cheapest path through exactly these words, with the start and the end of the sentence.

    Raises UsageError if a word is not among MeCab's candidates.
    """
    spans = list(pairwise(accumulate(map(len, words), initial=0)))
    first, *known, end = candidates("".join(words))
    for word, span in zip(words, spans, strict=True):
        if span not in {(each.start, each.end) for each in known}:
            message = tr_noop("words: {word!r} is not among MeCab's candidates for {words!r}")
            raise UsageError(tr(message, word=word, words="".join(words)))
    chosen = [each for each in known if (each.start, each.end) in spans]
    return path_to(end, cheapest_paths([first, *chosen, end]))


def path(words: Sequence[str]) -> list[Step]:
    """Return the steps of `path_through`, with their costs; the last one is the end of the sentence.

    Its `total` is the cost of the path, and so of the segmentation. Raises UsageError if a word is not among MeCab's
    candidates.
    """
    steps: list[Step] = []
    total = 0
    for before, word in pairwise(path_through(words)):
        connection_cost = connection(before, word)
        total += connection_cost + word.cost
        steps.append(Step(word.text, word.part_of_speech, word.cost, connection_cost, total))
    return steps
