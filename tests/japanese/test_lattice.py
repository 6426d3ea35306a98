"""MeCab's costs of a segmentation."""

from itertools import product

import jumandic
import pytest
from course_lib.errors import UsageError
from course_lib.japanese import lattice, mecab
from fugashi import GenericTagger

TEXTS = ("外国人参政権", "すもももももももものうち", "雨が降っていた。", "Pyで書く", "☃☃が来た", "東京都")


@pytest.mark.parametrize("text", TEXTS)
def test_the_cost_of_the_best_path_is_mecabs(text: str) -> None:
    tagger = GenericTagger(f'{jumandic.MECAB_ARGS} -F "" -U "" -E %pc')
    assert lattice.path(mecab.words(text))[-1].total == int(tagger.parse(text))


@pytest.mark.parametrize("text", TEXTS)
def test_no_other_segmentation_is_cheaper(text: str) -> None:
    best = lattice.path(mecab.words(text))[-1].total
    totals = []
    for boundaries in product((True, False), repeat=len(text) - 1):
        line = "".join(char + " " * cut for char, cut in zip(text, (*boundaries, False), strict=True))
        try:
            totals.append(lattice.path(line.split(" "))[-1].total)
        except UsageError:
            continue
    assert len(totals) > 1 and min(totals) == best


def test_a_word_that_is_no_candidate_is_refused() -> None:
    with pytest.raises(UsageError, match="外国人参"):
        lattice.path(["外国人参", "政権"])
