"""Scores of GPTSAN: the loss of the same text in training's layout, windows, batches, the spout."""

import math

import numpy as np
import pytest
import torch
from course_lib.evaluation import bits
from course_lib.evaluation.windows import WindowSettings, score
from course_lib.gptsan.generate import GPTSanGenerator
from course_lib.gptsan.layouts import SpecialIds, pack
from course_lib.gptsan.score import GPTSanScorer
from course_lib.gptsan.tokenizer import GPTSanTokenizer

from tests.gptsan.test_generate import CAT, DOG, build

TEXTS = ["犬", DOG, CAT, "外は雨だ！", DOG + "\n" + CAT]


@pytest.fixture(scope="module")
def generator(words: GPTSanTokenizer) -> GPTSanGenerator:
    return GPTSanGenerator(build(words, embedding_init_std=1.0, spout_init_std=1.0), words)


# In Python, a class is a number, and 0 is one.
@pytest.mark.parametrize("spout", ["none", "2", 0])
def test_a_document_costs_what_its_training_example_costs(
    generator: GPTSanGenerator, words: GPTSanTokenizer, spout: int | str
) -> None:
    text = "犬が吠えた。外は雨だ！わんわんわん、あああ。"
    ((x, y),) = pack([text], words.swe, SpecialIds.of(words.swe), 64)
    scorer = GPTSanScorer(generator, spout)
    assert (scorer.vector is None) == (spout == "none")
    length = max(at for at, label in enumerate(y) if label >= 0) + 1
    with torch.no_grad():
        logits = generator.model(torch.tensor([x[:length]]), spout=scorer.vector).logits[0].log_softmax(-1)
    nats = -sum(logits[at, label].item() for at, label in enumerate(y[:length]) if label >= 0)
    found = bits.bits(scorer, [text])
    assert found.tokens == sum(label >= 0 for label in y) <= scorer.max_length
    assert found.bits == pytest.approx(nats / math.log(2), rel=1e-5)


def test_batches_padding_and_neighbours_change_nothing(generator: GPTSanGenerator) -> None:
    scorer = GPTSanScorer(generator, "1")
    sequences = [scorer.tokens(text, end=True) for text in TEXTS]
    alone = score(scorer, sequences, WindowSettings(batch_size=1))
    for one, batched in zip(alone, score(scorer, sequences, WindowSettings(batch_size=3)), strict=True):
        assert np.abs(one.log_probabilities - batched.log_probabilities).max() < 1e-5


def test_later_windows_begin_like_a_training_example(generator: GPTSanGenerator) -> None:
    scorer = GPTSanScorer(generator)
    tokens = scorer.tokens(DOG + "\n" + CAT, end=True)
    assert len(tokens.target) > scorer.max_length
    (found,) = score(scorer, [tokens], WindowSettings(window=16, stride=8))
    # the second window: tokens 8 to 23, of which 16 to 23 are scored
    ids = torch.tensor([[scorer.generator.special.sot, scorer.generator.special.seg, *tokens.read[8:24]]])
    with torch.no_grad():
        rows = generator.model(ids).logits[0, 2:].log_softmax(-1)
    expected = [rows[at - 8, tokens.target[at]].item() for at in range(16, 24)]
    assert found.log_probabilities[16:24] == pytest.approx(expected, abs=1e-5)
