"""Every kind of damage is found and named; a whole folder has none."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from course_lib import cli
from course_lib.errors import CourseError
from course_lib.serving import reader
from course_lib.serving.check import inspect
from course_lib.serving.export import export

from tests.serving import models
from tests.serving.models import FAMILIES, as_task, build, save

BIAS = "model.layers.0.attention.query_key_value.bias.1.bin"


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    tasks = [*(as_task(*task) for task in models.prefixes().items()), as_task("none", None)]
    return {
        family: export(save(build(family), tmp_path / f"{family}-model"), tmp_path / family, 2, "fp16", tasks).folder
        for family in FAMILIES
    }


def replace(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / "config.ini").read_text()
        assert old in text
        (folder / "config.ini").write_text(text.replace(old, new))

    return change


def write(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damage


@pytest.mark.parametrize("family", FAMILIES)
def test_a_whole_folder(folders, family: str):
    found = inspect(folders[family], values=True)
    assert found.findings == [] and found.config is not None and len(found.config.tasks) == 3
    assert found.files == len(list(folders[family].iterdir()))


@pytest.mark.parametrize(
    "damage, found",
    [
        (lambda folder: (folder / BIAS).unlink(), f"missing: {BIAS}: expected 48 bytes"),
        (write(BIAS, lambda data: data[:-1]), f"short: {BIAS}: 47 bytes, expected 48 ([3, 8] of fp16)"),
        (write(BIAS, lambda data: data * 2), f"dtype: {BIAS}: 96 bytes"),
        (lambda folder: (folder / "model.layers.2.x.bin").touch(), "unexpected: model.layers.2.x.bin"),
        (replace("head_num = 4", "head_num = 3"), "config: config.ini: 3 (heads) is not divisible by 2 ranks"),
        (replace("task_name = plain", "task_name = ../plain"), "config: config.ini"),
        (write(BIAS, lambda data: np.array([np.nan, np.inf, 1], np.float16).tobytes() + data[6:]), f"values: {BIAS}: 2 of 24 numbers"),
    ],
)  # fmt: skip
def test_damage_is_named(folders, damage, found: str):
    folder = folders["sequential"]
    damage(folder)
    assert any(str(finding).startswith(found) for finding in inspect(folder.parent, values=True).findings)
    assert cli._main(["ft", "inspect", str(folder), "--values"]) == 1


def test_what_the_engine_takes_without_a_word(folders):
    folder = folders["sequential"]
    replace("use_gptj_residual = 0\n", "")(folder)
    replace("= fp16", "= half")(folder)
    replace("task_name = plain", "task_name = smile")(folder)
    found = [str(finding) for finding in inspect(folder).findings]
    assert "config: config.ini: use_gptj_residual is missing: the engine uses 1, parallel residual" in found
    assert "config: config.ini: weight_data_type = half is unknown (fp32, fp16, bf16): the engine uses fp32" in found
    assert "config: config.ini: several tasks have the same name: the engine keeps one of them" in found
    assert sum(finding.startswith("missing: model.layers.0.mlp.attention.bias.sum.bin") for finding in found) == 1


def test_gpt2_says_its_ranks_and_epsilon(folders):
    folder = folders["gpt2"]
    replace("tensor_para_size = 2", "tensor_para_size = 1")(folder)
    replace("layernorm_eps = 1e-05\n", "")(folder)
    eps, ranks = inspect(folder).findings
    assert "tensor_para_size = 1" in ranks.message and "layernorm_eps is missing" in eps.message


@pytest.mark.parametrize(
    "content, key",
    [
        (b"[gptneox]\nmodel_name = \xff\n", "utf-8"),
        (b"[gptneox]\nhead_num = 4\nhead_num = 5\n", "head_num"),
        (b"[bert]\nhead_num = 4\n", "[gptneox]"),
        (b"[gptneox]\nmodel_name = a\nhead_num = four\n", "head_num = four: allowed"),
    ],
)
def test_a_config_that_cannot_be_read(folders, content: bytes, key: str):
    folder = folders["sequential"]
    (folder / "config.ini").write_bytes(content)
    found = inspect(folder)
    assert found.config is None and key in found.findings[0].message
    with pytest.raises(CourseError) as error:
        reader.load(folder)
    assert key in str(error.value) and "\n" not in str(error.value)
