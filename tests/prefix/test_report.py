"""Counts of parameters, against the modules themselves on the meta device."""

from pathlib import Path

import pytest
import torch
from course_lib.generation.prefix_cache import Shape
from course_lib.prefix.encoder import PrefixEncoder
from course_lib.prefix.report import base_parameters, count

from tests.prefix.bases import FAMILIES, base


def test_rinnas_model_of_3_6_billion_parameters() -> None:
    counts = count(Shape(36, 22, 128), 3_607_245_312, 20, 64, 64)
    assert (counts.trained, counts.deployed) == (13_184_320, 4_055_040)
    with torch.device("meta"):
        encoder = PrefixEncoder(20, 2 * 36 * 2816, 64, 64)
    assert sum(weight.numel() for weight in encoder.parameters()) == counts.trained


@pytest.mark.parametrize("family", FAMILIES)
def test_the_base_is_counted_by_its_config(family: str, tmp_path: Path) -> None:
    model = base(family)
    model.config.save_pretrained(tmp_path)
    assert base_parameters(tmp_path) == sum(weight.numel() for weight in model.parameters())
