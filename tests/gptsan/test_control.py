"""Short trainings with and without the class in the spout."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from course_lib.checkpoints import weight_files
from course_lib.gptsan import control, swe
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.control import Control, short_run, short_runs
from course_lib.gptsan.encode import encode
from course_lib.gptsan.encode_config import EncodeConfig
from course_lib.gptsan.examples import Examples
from course_lib.gptsan.extra_stage import add_extra_stage
from course_lib.gptsan.tokenizer import load_tokenizer
from course_lib.training.settings import OptimizerConfig, PrecisionConfig, RateConfig

from tests.gptsan import handmade
from tests.gptsan.test_generate import build

CONTEXT = 24
TEXTS = ("犬が吠えた。外は雨だ！", "猫が寝ている。夢の中。")
LETTERS = sorted(set("".join(TEXTS)))
SETTINGS = GptsanConfig(
    optimizer=OptimizerConfig(lr=RateConfig(max=3e-2, min=3e-3, warmup_rate=0.1), grad_clip=1.0),
    precision=PrecisionConfig(dtype="fp32"),
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained base, whose spout is heard, and eight documents of each class."""
    place = tmp_path_factory.mktemp("base")
    words = load_tokenizer(handmade.write(place / "tokenizer", [*LETTERS, *swe.SPECIALS]))
    model = build(words, num_ext_layers=0, spout_init_std=0.5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("model.spout."):
                parameter.normal_(std=0.7)
    model.save_pretrained(place / "model")
    words.save_pretrained(place / "model")
    add_extra_stage(place / "model", place / "stage", 1, seed=5)
    rng = np.random.default_rng(0)
    for label, text in enumerate(TEXTS):
        for number in range(8):
            (place / f"{label}-{number}.txt").write_text("".join(rng.permutation(list(text))) * 4, encoding="utf8")
    rows = ["filename,fileid", *(f"{label}-{number}.txt,{label}" for label in (0, 1) for number in range(8))]
    (place / "list.csv").write_text("\n".join(rows) + "\n", encoding="utf8")
    encode(
        str(place / "list.csv"), place / "tokenizer", place / "examples", EncodeConfig(num_context=CONTEXT, d_spout=4)
    )
    return place


def test_the_class_helps_and_a_shuffled_one_does_not(base: Path) -> None:
    examples = Examples(base / "examples").split(0.25, 0)
    how = Control(steps=60, samples=8, length=CONTEXT)
    found = short_runs(base / "stage", SETTINGS, examples, {"own": False, "shuffled": True}, (0,), how)
    (own,), (shuffled,) = found.values()
    assert own.loss < shuffled.loss and own.agreement > 0.9
    few = Control(steps=3, samples=8, length=CONTEXT)
    first, again, other = (short_run(base / "stage", SETTINGS, examples, few, (seed, False)) for seed in (0, 0, 1))
    assert first == again != other


def test_new_parameters_depend_on_the_seed_alone(base: Path, tmp_path: Path) -> None:
    add_extra_stage(base / "model", tmp_path / "stage", 1, seed=3)
    other = control._staged(base / "stage", SETTINGS, 3)
    assert weight_files.differing(tmp_path / "stage", base / "stage")
    held = {name: weight.contiguous() for name, weight in weight_files.by_name(tmp_path / "stage").items()}
    assert all(torch.equal(weight, held[name]) for name, weight in other.named_parameters())


def test_the_stage_and_the_spout_learn_in_fp32_and_the_rest_is_frozen_in_bf16(base: Path) -> None:
    settings = replace(SETTINGS, precision=replace(SETTINGS.precision, dtype="bf16"))
    model = control._staged(base / "stage", settings, 0)
    dtypes = {(parameter.requires_grad, parameter.dtype) for parameter in model.parameters()}
    assert dtypes == {(False, torch.bfloat16), (True, torch.float32)}
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained and all(name.startswith(("model.spout.", "model.blocks.1.", "model.extra_")) for name in trained)


def test_shuffled_classes_are_those_of_other_documents(base: Path) -> None:
    examples = Examples(base / "examples")
    own, other = (control._classes(examples, rng) for rng in (None, np.random.default_rng(0)))
    documents = examples.arrays["document"]
    assert np.bincount(own[np.unique(documents, return_index=True)[1]]).tolist() == [8, 8]
    assert all(len(set(other[documents == number])) == 1 for number in range(16))
    assert np.bincount(other[np.unique(documents, return_index=True)[1]]).tolist() == [8, 8]
    assert (own != other).any()
