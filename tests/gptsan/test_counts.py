"""GPTSAN: a class given as a number is a class, 0 too; speeds count tokens, not padding."""

from pathlib import Path

import numpy as np
import pytest
import torch
from course_lib.command_line.evaluate import open_model
from course_lib.errors import CourseError, UsageError
from course_lib.files import write_json
from course_lib.gptsan.examples import Examples, ExampleWriter
from course_lib.gptsan.generate import GPTSanGenerator
from course_lib.gptsan.hf_config import GPTSanConfig, require_fitting
from course_lib.gptsan.score import GPTSanScorer
from course_lib.gptsan.tokenizer import GPTSanTokenizer
from safetensors.torch import load_file, save_file

from tests.gptsan.test_generate import WIDTH, build


@pytest.fixture(scope="module")
def generator(words: GPTSanTokenizer) -> GPTSanGenerator:
    return GPTSanGenerator(build(words, embedding_init_std=1.0, spout_init_std=1.0), words)


@pytest.mark.parametrize(("spout", "label"), [(0, 0), ("0", 0), (1, 1), ("2", 2), (None, None), ("none", None)])
def test_a_number_is_a_class(spout: int | str | None, label: int | None, generator: GPTSanGenerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    write_json(tmp_path / "config.json", {"model_type": "gptsan-japanese"})
    monkeypatch.setattr(GPTSanGenerator, "open", lambda folder, dtype: generator)
    scorer = open_model(tmp_path, spout=spout)
    assert isinstance(scorer, GPTSanScorer)
    if label is None:
        assert scorer.vector is None
    else:
        assert scorer.vector is not None and torch.equal(scorer.vector, torch.eye(WIDTH)[label : label + 1])


@pytest.mark.parametrize("spout", [0, "0", 3])
def test_other_models_have_no_classes(spout: int | str, tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"model_type": "gpt2"})
    with pytest.raises(UsageError, match="--spout: not allowed with .*, a gpt2 model"):
        open_model(tmp_path, spout=spout)


def examples(folder: Path, tokens: int | None) -> Examples:
    """Three examples of 8 positions."""
    folder.mkdir()
    with ExampleWriter(folder, 8) as writer:
        zeros, rows = np.zeros((3, 8)), np.arange(3)
        writer.append(x=zeros, y=zeros, i=rows, document=rows)
    report = {"examples": 3, "num_context": 8, "classes": None, "largest_id": 0}
    write_json(folder / "encoding.json", report | ({} if tokens is None else {"tokens": tokens}))
    return Examples(folder)


@pytest.mark.parametrize(("tokens", "mean"), [(12, 4.0), (24, 8.0), (1, 1 / 3), (None, 8.0)])
def test_padding_is_no_token(tokens: int | None, mean: float, tmp_path: Path) -> None:
    found = examples(tmp_path / "encoded", tokens)
    assert found.tokens_per_example == mean
    # A part of them is counted as the whole.
    assert Examples(found.folder, found.rows[:2]).tokens_per_example == mean


def test_sizes_and_heads_are_compared_with_the_file(words: GPTSanTokenizer, tmp_path: Path) -> None:
    model = build(words)
    model.save_pretrained(tmp_path)
    config: GPTSanConfig = model.config
    require_fitting(tmp_path, config)
    weights = load_file(tmp_path / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    save_file(weights | {"lm_head.weight": embedding.clone()}, tmp_path / "model.safetensors", {"format": "pt"})
    require_fitting(tmp_path, config)
    save_file(weights | {"lm_head.weight": embedding + 1}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(CourseError, match="lm_head.weight is not the embedding"):
        require_fitting(tmp_path, config)
    config.num_experts = 10**9
    with pytest.raises(CourseError, match="1000000000 experts, the weights are"):
        require_fitting(tmp_path, config)
