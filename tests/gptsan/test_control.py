"""Short trainings with and without the class in the spout."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from course_lib.gptsan import control
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.control import Control, short_run, short_runs
from course_lib.gptsan.examples import Examples
from course_lib.training.settings import OptimizerConfig, PrecisionConfig, RateConfig

from tests.gptsan.test_training import inputs

CONTEXT = 40
SETTINGS = GptsanConfig(
    optimizer=OptimizerConfig(lr=RateConfig(max=3e-2, min=3e-3, warmup_rate=0.1), grad_clip=1.0),
    precision=PrecisionConfig(dtype="fp32"),
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained base and its stage, and eight documents of each of three classes."""
    return inputs(tmp_path_factory.mktemp("base"))


def test_the_class_helps_and_a_shuffled_one_does_not(base: Path) -> None:
    examples = Examples(base / "examples").split(0.25, 0)
    how = Control(steps=60, samples=8, length=CONTEXT)
    found = short_runs(base / "stage", SETTINGS, examples, {"own": False, "shuffled": True}, (0,), how)
    (own,), (shuffled,) = found.values()
    assert own.loss < shuffled.loss and own.agreement > 0.9
    few = Control(steps=3, samples=8, length=CONTEXT)
    first, again, other = (short_run(base / "stage", SETTINGS, examples, few, (seed, False)) for seed in (0, 0, 1))
    assert first == again != other


def test_the_stage_and_the_spout_learn_in_fp32_and_the_rest_is_frozen_in_bf16(base: Path) -> None:
    settings = replace(SETTINGS, precision=replace(SETTINGS.precision, dtype="bf16"))
    model = control._staged(base / "stage", settings, 0)
    dtypes = {(parameter.requires_grad, parameter.dtype) for parameter in model.parameters()}
    assert dtypes == {(False, torch.bfloat16), (True, torch.float32)}
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained and all(name.startswith(("model.spout.", "model.blocks.2.", "model.extra_")) for name in trained)


def test_shuffled_classes_are_those_of_other_documents(base: Path) -> None:
    examples = Examples(base / "examples")
    own, other = (control._classes(examples, rng) for rng in (None, np.random.default_rng(0)))
    documents = examples.arrays["document"]
    assert np.bincount(own[np.unique(documents, return_index=True)[1]]).tolist() == [8, 8, 8]
    assert all(len(set(other[documents == number])) == 1 for number in range(24))
    assert np.bincount(other[np.unique(documents, return_index=True)[1]]).tolist() == [8, 8, 8]
    assert (own != other).any()
