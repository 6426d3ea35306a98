"""GPT-2, GPT-NeoX and prefixes: Hugging Face's own loss, windows, batches and padding."""

import math

import numpy as np
import pytest
import torch
from course_lib.errors import CourseError
from course_lib.evaluation import bits
from course_lib.evaluation.causal import FolderScorer
from course_lib.evaluation.scoring import Sampling
from course_lib.evaluation.windows import WindowSettings, score
from course_lib.generation.generator import Generator
from course_lib.generation.prefix_cache import Shape
from course_lib.prefix.files import Prefix
from course_lib.prefix.model import PrefixModel
from course_lib.pretrain import text_codec
from torch import nn

from tests.prefix import bases
from tests.prefix.bases import FAMILIES
from tests.pretrain.models import OTHER, SENTENCE

TEXTS = ["早稲田", SENTENCE, OTHER, SENTENCE + OTHER, "𠮷野家でＤｅｅｐ", SENTENCE * 9]


@pytest.fixture(scope="module", params=FAMILIES)
def generator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator:
    return Generator(bases.folder(tmp_path_factory.mktemp(request.param), request.param), text_codec.load)


@pytest.fixture(scope="module")
def prefix(generator: Generator) -> Prefix:
    shape = Shape.of(generator.model.config)
    return Prefix(torch.randn(5, shape.width, generator=torch.Generator().manual_seed(1)), "task", shape=shape)


def test_one_window_is_hugging_faces_own_loss(generator: Generator) -> None:
    scorer = FolderScorer(generator)
    tokens = scorer.tokens(SENTENCE, end=True)
    ids = torch.tensor([[generator.begin, *tokens.target]])
    loss = generator.model(ids, labels=ids).loss.item()
    found = bits.bits(scorer, [SENTENCE])
    assert found.tokens == len(tokens.target) == ids.shape[1] - 1 and tokens.target[-1] == generator.end
    assert math.log(found.perplexity_per_token) == pytest.approx(loss, rel=1e-5)
    assert found.bits_per_character == pytest.approx(loss * found.tokens / math.log(2) / len(SENTENCE), rel=1e-5)


def test_greedy_is_the_argmax(generator: Generator) -> None:
    scorer = FolderScorer(generator)
    tokens = scorer.tokens(SENTENCE, end=False)
    (found,) = score(scorer, [tokens])
    best = generator.model(torch.tensor([tokens.read])).logits[0].argmax(-1)
    assert found.greedy is not None
    assert found.greedy.tolist() == (best == torch.tensor(tokens.target)).tolist()


@pytest.mark.parametrize("with_prefix", [False, True])
def test_batches_and_padding_change_nothing(generator: Generator, prefix: Prefix, with_prefix: bool) -> None:
    scorer = FolderScorer(generator, prefix if with_prefix else None)
    sequences = [scorer.tokens(text, end=True) for text in TEXTS]
    alone = score(scorer, sequences, WindowSettings(batch_size=1))
    for size in (2, 3, 64):
        for one, batched in zip(alone, score(scorer, sequences, WindowSettings(batch_size=size)), strict=True):
            assert np.abs(one.log_probabilities - batched.log_probabilities).max() < 1e-5


def test_windows_score_every_token_with_its_context(generator: Generator) -> None:
    scorer = FolderScorer(generator)
    tokens = scorer.tokens(SENTENCE * 9, end=True)
    assert scorer.max_length == bases.POSITIONS < len(tokens.target)
    size, stride = 16, 5
    (found,) = score(scorer, [tokens], WindowSettings(window=size, stride=stride))
    expected = []
    for at, target in enumerate(tokens.target):
        # the window that scores token `at`
        step = 0 if at < size else 1 + (at - size) // stride
        start = max(min(size + step * stride, len(tokens.target)) - size, 0)
        logits = generator.model(torch.tensor([tokens.read[start : at + 1]])).logits[0, -1]
        expected.append(logits.log_softmax(-1)[target].item())
    assert found.log_probabilities == pytest.approx(expected, abs=1e-4)


def test_a_prefix_scores_as_in_its_training(generator: Generator, prefix: Prefix) -> None:
    class Fixed(nn.Module):
        def forward(self) -> torch.Tensor:
            return prefix.values

    scorer = FolderScorer(generator, prefix)
    tokens = scorer.tokens(SENTENCE, end=True)
    model = PrefixModel(generator.model, Fixed())  # type: ignore[arg-type]
    with torch.no_grad():
        rows = model(torch.tensor([tokens.read]))[0].log_softmax(-1)
    expected = rows[torch.arange(len(tokens.target)), torch.tensor(tokens.target)].numpy()
    (found,) = score(scorer, [tokens])
    assert found.log_probabilities == pytest.approx(expected, abs=1e-5)
    (without,) = score(FolderScorer(generator), [tokens])
    assert np.abs(found.log_probabilities - without.log_probabilities).max() > 0.1


def test_a_prefix_of_another_base(generator: Generator, prefix: Prefix) -> None:
    with pytest.raises(CourseError, match="trained on the weights"):
        FolderScorer(generator, Prefix(prefix.values, "task", "0" * 64, prefix.shape))


def test_a_continuation_of_a_prompt_that_is_too_long(generator: Generator, prefix: Prefix) -> None:
    scorer = FolderScorer(generator, prefix)
    first, second = scorer.complete(["早稲田", SENTENCE * 9], Sampling(4))
    assert first == scorer.complete(["早稲田"], Sampling(4))[0] and isinstance(second, str)
