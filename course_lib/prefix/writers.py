"""Texts of the two writers that come with the model `aozora`, for a blind reading."""

import random
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.generation.generator import Generator
    from course_lib.generation.prefix_cache import Prefix

WRITERS = ("dowa", "tantei")
# Prompts of no genre; each writer continues each of them.
PROMPTS = ("その夜、", "ある日、", "彼は", "朝になって、", "窓の外に")
# Known characters, whose names would tell the genre.
NAMES = re.compile("明智|小林|二十面相|文代|手塚|帆村|木村|丸山|太郎|ごん|兵十")
SEED, TOKENS = 6, 60


def prefixes() -> dict[str, "Prefix"]:
    """Return the prefix of each writer."""
    from course_lib.checkpoints import aozora
    from course_lib.prefix import files

    return {name: files.read(aozora.folder() / "prefixes" / f"{name}.safetensors") for name in WRITERS}


def key() -> str:
    """Return who wrote each of the blind texts, by the first letter of the writer's name."""
    letters = [name[0] for name in WRITERS for _ in PROMPTS]
    random.Random(SEED).shuffle(letters)
    return "".join(letters)


def blind_texts(generator: "Generator") -> list[str]:
    """Return a text for each letter of the key, with names masked. All are written in one batch."""
    from course_lib.generation.config import GenerateConfig

    prompts = {name[0]: iter(PROMPTS) for name in WRITERS}
    of_letter = {name[0]: prefix for name, prefix in prefixes().items()}
    asked = [next(prompts[letter]) for letter in key()]
    settings = GenerateConfig(max_new_tokens=TOKENS, seed=SEED)
    rows = generator.generate(asked, settings, [of_letter[letter] for letter in key()])
    return [NAMES.sub("〇〇", row[0].text).replace("\n", "／") for row in rows]
