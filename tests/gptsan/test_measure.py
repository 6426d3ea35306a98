"""Mean loss, against one forward pass over everything."""

from typing import Any

import numpy as np
import pytest
import torch
from course_lib.gptsan import measure
from course_lib.gptsan.measure import mean_loss
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.samples import collate
from torch.nn.functional import cross_entropy

from tests.gptsan.test_model import build

LENGTH, NUMBER = 10, 7


@pytest.fixture(scope="module")
def model() -> GPTSanForCausalLM:
    return build()


@pytest.fixture
def examples(model: GPTSanForCausalLM) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    found = []
    for label in range(NUMBER):
        x = rng.integers(0, 6, LENGTH)
        y = np.where(np.arange(LENGTH) < 4 + label % 3, x, -1)
        found.append({"x": x, "y": y, "i": np.int64(label % 2)})
    return found


@pytest.mark.parametrize("told", [None, 1])
def test_the_loss_is_that_of_one_pass(model, examples, told, monkeypatch) -> None:
    spout = None if told is None else torch.eye(model.config.d_spout)[told]
    vector = None if spout is None else spout.expand(NUMBER, -1)
    # One pass reads all positions; batches of `collate` end with the last target of their longest example.
    x, y = (torch.from_numpy(np.stack([example[name] for example in examples])) for name in "xy")
    assert collate(examples)["x"].shape == (NUMBER, 6)
    with torch.inference_mode():
        logits = model(x, spout=vector).logits
    expected = cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-1).item()
    for size in (1, 3, 16):
        monkeypatch.setattr(measure, "BATCH", size)
        assert mean_loss(model, iter(examples), spout) == pytest.approx(expected, abs=1e-5)
    assert told is None or mean_loss(model, examples) != pytest.approx(expected, abs=1e-3)
