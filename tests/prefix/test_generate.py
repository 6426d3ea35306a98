"""Texts with and without prefixes, side by side."""

from pathlib import Path

import pytest
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.prefix.files import Prefix
from course_lib.prefix.generate import side_by_side
from course_lib.pretrain import text_codec

from tests.generation.test_prefix_cache import prefix
from tests.prefix import bases
from tests.pretrain import models

GREEDY = GenerateConfig(strategy="greedy", max_new_tokens=12)


@pytest.mark.parametrize("family", bases.FAMILIES)
def test_side_by_side(tmp_path: Path, family: str) -> None:
    generator = Generator(bases.folder(tmp_path, family), text_codec.load)
    prefixes = [Prefix(prefix(3), "a"), Prefix(prefix(7, 1), "b")]
    rows = side_by_side(generator.folder, ["牛丼", ""], prefixes, GREEDY)
    assert [(texts[0].prompt, task) for task, texts in rows] == [(p, t) for p in ("牛丼", "") for t in ("", "a", "b")]
    assert [texts for _, texts in rows[1:3]] == [generator.generate(["牛丼"], GREEDY, [one])[0] for one in prefixes]
    assert models.SENTENCE not in {one.text for _, texts in rows for one in texts}
