"""Counts of parameters, against the modules themselves on the meta device."""

from pathlib import Path

import pytest
import torch
from course_lib.generation.prefix_cache import Shape
from course_lib.prefix.report import base_parameters, count
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from tests.prefix.bases import FAMILIES, base


def test_the_models_of_the_reference() -> None:
    """rinna's 3.6B: 36 layers of 2816, 22 heads; prefix of 20, 64 and 64 inside."""
    config = GPTNeoXConfig(vocab_size=32_000, hidden_size=2816, intermediate_size=11_264, num_hidden_layers=36, num_attention_heads=22)  # fmt: skip
    with torch.device("meta"):
        model = GPTNeoXForCausalLM(config)
    counts = count(Shape.of(config), sum(weight.numel() for weight in model.parameters()), 20, 64, 64)
    assert (counts.trained, counts.deployed) == (13_184_320, 4_055_040)
    assert counts.summary() == (
        "trained 13,184,320 (0.37% of the base's 3,607,245,312), deployed 4,055,040 (0.11%)"
    )  # fmt: skip
    small = count(Shape(12, 12, 64), 1, 10, 10, 10)
    assert (small.trained, small.deployed) == (202_962, 184_320)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_base_is_counted_by_its_config(family: str, tmp_path: Path) -> None:
    model = base(family)
    model.config.save_pretrained(tmp_path)
    assert base_parameters(tmp_path) == sum(weight.numel() for weight in model.parameters())
