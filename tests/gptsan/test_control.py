"""Short trainings with right and with shuffled classes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.control import short_run, shuffled_classes
from course_lib.gptsan.examples import Examples
from course_lib.gptsan.measure import mean_loss
from course_lib.training.settings import LaunchConfig, OptimizerConfig, PrecisionConfig, RateConfig

from tests.gptsan.test_training import inputs

SETTINGS = GptsanConfig(
    optimizer=OptimizerConfig(lr=RateConfig(max=3e-2, min=3e-3, warmup_rate=0.1), grad_clip=1.0),
    precision=PrecisionConfig(dtype="fp32"),
    launch=LaunchConfig(device="cpu"),
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained base and its stage, and eight documents of each of three classes."""
    return inputs(tmp_path_factory.mktemp("base"))


def test_the_class_helps_and_a_shuffled_one_does_not(base: Path) -> None:
    train, held_out = Examples(base / "examples").split(0.25, 0)
    texts = [[example for example in held_out if example["i"] == label] for label in range(3)]
    losses = []
    for examples in (train, shuffled_classes(train)):
        model = short_run(base / "stage", SETTINGS, examples, steps=60, size=8)
        losses.append([mean_loss(model, texts[label], torch.eye(8)[label]) for label in range(3)])
    own, shuffled = losses
    assert sum(own) < sum(shuffled)
    first, again = (short_run(base / "stage", SETTINGS, train, 3, 8).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_a_run_in_bf16_can_be_measured(base: Path) -> None:
    settings = replace(SETTINGS, precision=PrecisionConfig(dtype="bf16"))
    examples = Examples(base / "examples")
    model = short_run(base / "stage", settings, examples, 1, 2)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert mean_loss(model, examples, torch.eye(8)[0]) > 0


def test_shuffled_classes_are_those_of_other_documents(base: Path) -> None:
    examples = Examples(base / "examples")
    own, other = (each.arrays["i"] for each in (examples, shuffled_classes(examples)))
    documents = examples.arrays["document"]
    assert all(len(set(other[documents == number])) == 1 for number in range(24))
    assert np.bincount(other[np.unique(documents, return_index=True)[1]]).tolist() == [8, 8, 8]
    assert (own != other).any()
