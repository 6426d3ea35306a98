"""The course's model: what it has learned, by texts and pairs of ours, and the same greedy texts in every engine."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from course_lib import paths
from course_lib.checkpoints import aozora
from course_lib.command_line.evaluate import GRAMMAR, open_model, read_pairs
from course_lib.evaluation import bits, pairs
from course_lib.evaluation.causal import FolderScorer
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.pretrain import text_codec
from course_lib.serving import ct2, reader
from course_lib.serving.ct2_generate import Ct2Generator
from course_lib.serving.engine import Engine
from course_lib.serving.export import export
from course_lib.serving.ft_import import import_folder
from course_lib.serving.request import RequestRow

PROMPTS = ("昔々、", "その夜、探偵は", "「おかあさん、", "山の上から見ると", "雨が")
NEW = 24


@pytest.fixture(scope="module")
def model() -> FolderScorer:
    scorer = open_model(aozora.folder())
    assert isinstance(scorer, FolderScorer)
    return scorer


def test_bits_of_a_text_of_ours_and_pairs(model: FolderScorer) -> None:
    """48 fairy tales that the model cannot have read: 3.61 bits per character."""
    files = sorted(paths.data("classified/list.csv").parent.glob("tale/*.txt"))
    found = bits.bits(model, [path.read_text(encoding="utf8") for path in files])
    assert found.documents == 48 and found.lost == 0
    assert found.bits_per_character < 3.7
    chosen = read_pairs(GRAMMAR)
    accuracies = pairs.accuracies(chosen, pairs.judge(model, chosen))
    assert accuracies["all"].pairs == 504 and accuracies["all"].accuracy >= 0.95


def log_probabilities(model: torch.nn.Module, ids: list[int], new: int) -> list[float]:
    """Of the last `new` ids, each after those before it."""
    with torch.inference_mode():
        rows = model(torch.tensor([ids])).logits[0, -new - 1 : -1].log_softmax(-1)
    return rows.gather(1, torch.tensor(ids[-new:])[:, None])[:, 0].tolist()


def test_every_engine_writes_the_same_greedy_texts(model: FolderScorer, tmp_path: Path) -> None:
    ours = model.generator.model
    codec = text_codec.load(aozora.folder())
    rows, expected = [codec.prompt(prompt) for prompt in PROMPTS], []
    for row in rows:
        inputs = torch.tensor([row])
        ids = ours.generate(inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=NEW)
        expected.append(ids[0].tolist())
    own = [log_probabilities(ours, ids, NEW) for ids in expected]

    export(aozora.folder(), tmp_path / "ft")
    answers = Engine.of(reader.load(tmp_path / "ft")).run([RequestRow(tuple(row), NEW) for row in rows], log_probs=True)
    assert [answer.ids for answer in answers] == expected
    assert np.abs(np.array([answer.log_probs for answer in answers]) - own).max() <= 1e-2

    import_folder(tmp_path / "ft", tmp_path / "back")
    back = Generator(tmp_path / "back", text_codec.load)
    settings = GenerateConfig(strategy="greedy", max_new_tokens=NEW)
    assert back.generate(PROMPTS, settings) == model.generator.generate(PROMPTS, settings)
    read_back = [log_probabilities(back.model, ids, NEW) for ids in expected]
    assert np.abs(np.array(read_back) - own).max() <= 1e-2
    # What it is to write by itself comes back, too.
    assert back.completed() == model.generator.completed() != GenerateConfig().completed({})

    ct2.export(aozora.folder(), tmp_path / "ct2")
    fast = Ct2Generator(tmp_path / "ct2")
    written = fast.continue_ids(rows, settings)
    assert [[*row, *ids] for row, (ids,) in zip(rows, written, strict=True)] == expected
    scored = fast._engine.score_batch([[fast.tokens[token] for token in ids] for ids in expected])
    assert np.abs(np.array([one.log_probs[-NEW:] for one in scored]) - own).max() <= 1e-2


def test_the_card_says_what_the_files_are() -> None:
    card = (aozora.folder() / aozora.CARD).read_text(encoding="utf8")
    own = json.loads((aozora.folder() / "generation_config.json").read_text())
    assert f"temperature {own['temperature']}" in card and f"top-p {own['top_p']}" in card
    assert aozora.DIGEST in card
