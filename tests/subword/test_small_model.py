"""The small GPT-2 that judges tokenizers: it learns, depends on the seed alone, and its figures are comparable."""

import math
from dataclasses import replace

import pytest
from course_lib.corpus import products
from course_lib.documents import read_texts
from course_lib.errors import CourseError
from course_lib.evaluation.bits import bits
from course_lib.evaluation.scoring import one_line
from course_lib.subword.config import BpeConfig
from course_lib.subword.folder import Codec
from course_lib.subword.small_model import SmallModelConfig, judge, train
from course_lib.subword.sweep import train_on
from course_lib.subword.unseen import unseen_texts

TINY = SmallModelConfig(hidden_size=32, length=32, batch=8, passes=2)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return unseen_texts()


@pytest.fixture(scope="module")
def codec(texts: list[str]) -> Codec:
    return train_on(texts, BpeConfig(vocab_size=2000, limit_alphabet=1200), segmented=False)


def test_it_learns(codec: Codec, texts: list[str]) -> None:
    short = replace(TINY, passes=0.01)
    untrained, trained = (bits(train(codec, texts[::2], 0, each), texts[1::2]) for each in (short, TINY))
    # A model that knows nothing costs log2(vocabulary) bits per token.
    assert untrained.bits / untrained.tokens == pytest.approx(math.log2(2000), abs=0.6)
    assert trained.bits_per_character < untrained.bits_per_character - 1


def test_a_seed_gives_the_same_model_and_another_seed_another(codec: Codec, texts: list[str]) -> None:
    found = judge({"a": codec, "b": codec}, texts[:60], texts[60:90], seeds=(0, 1), settings=TINY)
    assert list(found) == ["a", "b"]
    first, second = ([row.bits for row in found[name]] for name in "ab")
    assert first == pytest.approx(second, rel=1e-5)
    assert abs(first[0] - first[1]) > 1
    assert {row.characters for row in found["a"]} == {sum(len(one_line(text)) for text in texts[60:90])}


def test_too_little_text(codec: Codec) -> None:
    with pytest.raises(CourseError, match="needed: more than 32"):
        train(codec, ["短い"], 0, TINY)


def test_the_unseen_texts_are_in_no_corpus(texts: list[str]) -> None:
    corpora = [product.path() / products.DOCUMENTS for product in (products.WIKIPEDIA, products.WEBTEXT)]
    known = "\n".join(text for path in corpora for text in read_texts(path))
    # No text shares a run of 40 characters with the corpus.
    assert not [text for text in texts if any(text[at : at + 40] in known for at in range(0, len(text) - 40, 20))]
