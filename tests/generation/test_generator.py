"""Generation: what every setting does to real models, and the way from raw Japanese to raw Japanese."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.errors import CourseError, UsageError
from course_lib.generation.codec import Generated
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.japanese import normalize
from course_lib.pretrain import text_codec
from course_lib.settings import config

from tests.pretrain import models
from tests.pretrain.models import SENTENCE

GREEDY = GenerateConfig(strategy="greedy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.memorized(tmp_path_factory.mktemp("memorized"))


@pytest.fixture(scope="module")
def generator(folder: Path) -> Generator:
    return Generator(folder, text_codec.load)


@pytest.fixture(scope="module")
def flat(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator:
    return Generator(models.flat(folder, tmp_path_factory.mktemp("flat") / "model"), text_codec.load)


def texts(generator: Generator, prompt: str, settings: GenerateConfig | None = None) -> list[Generated]:
    (found,) = generator.generate([prompt], settings)
    return found


def test_raw_japanese_goes_in_and_comes_out(generator: Generator) -> None:
    assert texts(generator, "", GREEDY)[0].text == SENTENCE
    prompt = "早稲田大学でＤｅｅｐ　Learningを"
    (found,) = texts(generator, prompt, GREEDY)
    assert found.prompt == normalize(prompt) == "早稲田大学でDeep Learningを"
    assert found.text == SENTENCE
    assert found.continuation == SENTENCE.removeprefix(found.prompt)


def test_the_recipes_tokenizer_gives_words_without_spaces(tmp_path: Path) -> None:
    folder = models.memorized(tmp_path, lossless=False)
    (found,) = texts(Generator(folder, text_codec.load), "早稲田大学で", GREEDY)
    assert found.text == SENTENCE.replace(" ", "")


def test_text_of_bytes_at_the_boundary(generator: Generator) -> None:
    """A continuation that begins with half a character must not spoil the prompt's own bytes."""
    assert generator.codec
    whole = generator.codec.encode("𠮷")
    assert len(whole) == 4
    assert generator.codec.continuation(whole, [whole[0]]) == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("cut", ["␛", "。␛"])
def test_no_cut_mark_in_a_continuation(generator: Generator, cut: str) -> None:
    """A model can write the bytes of a ␛ that begins no mark."""
    tokenizer = generator.codec.tokenizer
    ids = tokenizer(cut, add_special_tokens=False)["input_ids"]
    assert len(ids) >= 3 and tokenizer.convert_ids_to_tokens(ids)[-1] in ("<0x9B>", "x", "<0x78>")
    assert generator.codec.continuation(generator.codec.encode("早稲田"), ids) == cut.replace("␛", "")
    assert generator.codec.continuation(generator.codec.encode("早\n"), generator.codec.encode("田\n")) == "田\n"


def test_same_seed_same_texts(flat: Generator) -> None:
    settings = GenerateConfig(max_new_tokens=12, num_return_sequences=3, top_p=1.0)
    state = torch.random.get_rng_state()
    first = texts(flat, "早", settings)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert texts(flat, "早", settings) == first
    assert len(set(first)) == 3
    assert texts(flat, "早", GenerateConfig(max_new_tokens=12, num_return_sequences=3, top_p=1.0, seed=7)) != first


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({}, [0.4, 0.3, 0.2, 0.1]),
        ({"top_k": 2}, [4 / 7, 3 / 7]),
        ({"top_p": 0.65}, [4 / 7, 3 / 7]),  # 0.4 + 0.3 crosses 0.65
        ({"temperature": 0.5}, [16 / 30, 9 / 30, 4 / 30, 1 / 30]),  # squares of the shares
    ],
)
def test_sampling_follows_the_models_distribution(
    flat: Generator, settings: dict[str, Any], shares: list[float]
) -> None:
    given = {"max_new_tokens": 1, "num_return_sequences": 1000, "top_k": 0, "top_p": 1.0} | settings
    counts = Counter(one.continuation for one in texts(flat, "早", config.build(GenerateConfig, given)))
    assert sorted((count / 1000 for count in counts.values()), reverse=True) == pytest.approx(shares, abs=0.05)


def test_lengths(flat: Generator, generator: Generator) -> None:
    (found,) = texts(flat, "早", GenerateConfig(max_new_tokens=7))
    assert len(found.continuation) == 7
    assert texts(generator, "早稲田", GREEDY)[0].text == SENTENCE  # stops at the end token
    longer = GenerateConfig(strategy="greedy", max_new_tokens=30, min_new_tokens=30)
    assert len(texts(generator, "早稲田", longer)[0].text) > len(SENTENCE)
    short = texts(generator, "早稲田", GenerateConfig(strategy="greedy", max_new_tokens=1))[0]
    assert SENTENCE.startswith(short.text) and short.text != SENTENCE


def test_any_causal_model_takes_the_prompt_as_it_stands(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    (other / "preparation.json").unlink()
    generator = Generator(other, text_codec.load)
    (found,) = texts(generator, "早稲田 大学 で Ｄ", GREEDY)
    assert found.prompt == "早稲田 大学 で Ｄ"
    (found,) = texts(generator, "早稲田 大学 で", GREEDY)
    assert found.continuation == SENTENCE.removeprefix("早稲田大学で")


def test_what_does_not_fit_the_positions(generator: Generator) -> None:
    long = "早稲田大学で勉強している。" * 20
    assert generator.codec
    tokens = len(generator.codec.encode(long))
    with pytest.raises(UsageError, match=f"^prompt: {tokens} tokens .* 40 positions"):
        texts(generator, long)
    head = len(generator.codec.encode("早稲田"))
    message = f"^prompt: {head} tokens leave {40 - head} of 40 positions, too few for max_new_tokens: 40$"
    with pytest.raises(UsageError, match=message):
        texts(generator, "早稲田", GenerateConfig(max_new_tokens=40))


def test_folders_that_are_no_model(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="not a model folder"):
        Generator(tmp_path, text_codec.load)
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CourseError, match="broken/model.safetensors: not a safetensors file, or cut short") as caught:
        Generator(broken, text_codec.load)
    assert "\n" not in str(caught.value)
