"""MeCab's costs: what a segmentation costs, word by word.

MeCab takes the path through the words of its dictionary with the smallest sum of the words' costs and of the costs of
each connection. Source: Kudo, Yamamoto and Matsumoto 2004, https://aclanthology.org/W04-3230/.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from course_lib.errors import UsageError
from course_lib.japanese import mecab
from course_lib.language.words import mark, tr


class Step(NamedTuple):
    """A word on a path. Costs have no unit; lower is better. The last step is the end of the sentence, ""."""

    word: str
    part_of_speech: str
    cost: int  # of the word itself
    connection: int  # to the word before
    total: int  # from the start of the sentence to the end of this word


# Output formats of MeCab: the byte offsets of all candidates, and the cheapest path through given words.
CANDIDATES = r"-a -F %ps\\t%pe\\n -U %ps\\t%pe\\n -E \\n"
FIELDS = r"%m\\t%f[0]\\t%pw\\t%pC\\t%pc\\n"
PARTIAL = rf"-p -F {FIELDS} -U {FIELDS} -E \\t\\t0\\t%pC\\t%pc\\n"


def path(words: Sequence[str]) -> list[Step]:
    """Return the cheapest path through exactly these words, ending with the end of the sentence.

    Its last `total` is the cost of the segmentation. Raises UsageError if a word is not among MeCab's candidates.
    """
    candidates = mecab.tagger(CANDIDATES).parse("".join(words))
    known = {tuple(map(int, line.split("\t"))) for line in candidates.split("\n") if line}
    ends = accumulate((len(word.encode()) for word in words), initial=0)
    for word, span in zip(words, pairwise(ends), strict=True):
        # In partial parsing, MeCab would take any text for an unknown word.
        if span not in known:
            message = mark("words: {word!r} is not among MeCab's candidates for {words!r}")
            raise UsageError(tr(message, word=word, words="".join(words)))
    lines = mecab.tagger(PARTIAL).parse("".join(f"{word}\t*\n" for word in words) + "EOS\n").splitlines()
    fields = [line.split("\t") for line in lines]
    return [Step(word, part, int(cost), int(link), int(total)) for word, part, cost, link, total in fields]
