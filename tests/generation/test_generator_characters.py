"""The batched generator keeps characters whole in every strategy, in batches and behind prefixes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.generation import byte_tokens
from course_lib.generation.character_mask import CharacterMask
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.prefix.files import Prefix
from course_lib.pretrain import text_codec
from course_lib.settings import config

from tests.generation.test_byte_tokens import state
from tests.generation.test_prefix_cache import prefix
from tests.prefix import bases
from tests.pretrain import models

BROKEN = "\N{REPLACEMENT CHARACTER}"
PROMPTS = ["早稲田大学で", "", "𠮷野家", "牛丼を", "勉強", "𠮷"]
HOWS = (
    {"num_return_sequences": 20, "top_k": 0, "top_p": 1.0},
    {"num_return_sequences": 20, "top_k": 5, "repetition_penalty": 1.3},
    {"strategy": "greedy"},
    {"strategy": "beam", "num_beams": 4, "num_return_sequences": 4},
)


@pytest.fixture(scope="module", params=bases.FAMILIES)
def generator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator:
    return Generator(bases.folder(tmp_path_factory.mktemp(request.param), request.param), text_codec.load)


def texts(generator: Generator, how: dict[str, Any], length: int, **more: Any) -> list[str]:
    settings = config.build(GenerateConfig, {"max_new_tokens": length} | how)
    return [one.text for found in generator.generate(PROMPTS, settings, **more) for one in found]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("length", [2, 13])
def test_characters_stay_whole(generator: Generator, how: dict[str, Any], length: int) -> None:
    given = [Prefix(prefix(3), "a"), Prefix(prefix(7, 1), "b"), None] * 2
    assert not any(BROKEN in text for text in texts(generator, how, length, prefixes=given))


def test_the_mask_is_the_table(tmp_path: Path) -> None:
    codec = text_codec.load(models.tokenizer(tmp_path))
    table = byte_tokens.of_tokenizer(codec.tokenizer, len(codec) + 3)
    mask = CharacterMask(table, "cpu")
    ids = torch.randint(len(codec), (200, 5))
    for remaining in range(1, 6):
        states = [state(table, row, remaining) for row in ids.tolist()]
        blocked = mask.blocked(ids, remaining)
        assert blocked.numpy().tolist() == table.blocked[min(remaining, 4) - 1, states].tolist()
    assert len(set(states)) > 4
