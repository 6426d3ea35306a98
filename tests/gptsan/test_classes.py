"""Examples of GPTSAN's classes: in a profile with the small world, class i is genre i."""

from pathlib import Path

import numpy as np
import pytest
from course_lib.gptsan import products
from course_lib.gptsan.config import EncodeConfig
from course_lib.gptsan.examples import Examples
from course_lib.gptsan.tokenizer import load_tokenizer
from course_lib.gptsan.vocabulary import build_vocabulary
from course_lib.world.check import check
from course_lib.world.genres import GENRES, documents


def test_classes_are_the_genres_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "CLASS_DOCUMENTS", 3)
    build_vocabulary((document.text for document in documents(200, seed=1)), 900, tmp_path / "words", 1.0)
    (tmp_path / "classes").mkdir()
    products._classes(tmp_path / "classes", [tmp_path / "words"], EncodeConfig(num_context=400, d_spout=16))
    examples, words = Examples(tmp_path / "classes"), load_tokenizer(tmp_path / "words")
    assert np.bincount(examples.arrays["i"]).tolist() == [3] * len(GENRES)
    for example in examples:
        text = words.decode(example["y"][example["y"] >= 0], skip_special_tokens=True).strip()
        assert check(text).genre == GENRES[example["i"]].name, text
