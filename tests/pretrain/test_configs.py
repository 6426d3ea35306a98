"""The bundled runs: each loads, its comments are true, and configs/README.md lists every knob."""

import re

import pytest
import torch
from course_lib.checkpoints import number_formats
from course_lib.errors import UsageError
from course_lib.models.causal import model_config
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings.config import describe, load
from course_lib.settings.profiles import CONFIGS
from course_lib.training.memory import plan
from transformers import AutoModelForCausalLM

from tests import configs_page

RUNS = sorted(path.name for family in ("gpt2", "gpt-neox") for path in CONFIGS.glob(f"{family}-*.yaml"))
README = (CONFIGS / "README.md").read_text(encoding="utf8")


def comment(name: str, what: str) -> str:
    found = re.search(rf"^# {what}: (.*)$", (CONFIGS / name).read_text(encoding="utf8"), re.MULTILINE)
    assert found, f"{name} has no comment '{what}'"
    return found[1]


def number(text: str) -> int:
    return int(text.replace(" ", ""))


@pytest.mark.parametrize("name", RUNS)
def test_comments_are_true(name, monkeypatch):
    # What a plan says of dtype auto depends on the processor.
    monkeypatch.setattr("course_lib.training.settings.of_processor", lambda: "fp32")
    settings = load(PretrainConfig, name)
    stated = number(comment(name, "Parameters"))
    assert settings.sizes().parameters == stated
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(model_config(settings.model))
    assert sum(p.numel() for p in model.parameters()) == stated

    memory = comment(name, "Memory")
    ranks = int(memory.split("per GPU on ")[1].split()[0])
    assert str(plan(settings, ranks)) == memory

    steps = r"(\d+) · (\d+) · (\d+) = ([\d ]+) sequences, ([\d ]+) tokens"
    stated_step = re.match(steps, comment(name, "Tokens per step"))
    assert stated_step
    micro, accumulation, of, total, tokens = map(number, stated_step.groups())
    batch = settings.batch.resolve(ranks)
    assert (micro, accumulation, of, total) == (batch.micro, batch.accumulation, ranks, batch.total)
    assert tokens == batch.total * settings.data.seq_length

    assert comment(name, "Meant for") and comment(name, "Recipe")
    assert settings.engine.output_dir.as_posix() == f"output/{name.removesuffix('.yaml')}"
    assert not settings.data.input and settings.data.tokenizer is None


def test_a_warm_up_longer_than_the_run_is_refused_when_the_settings_are_read():
    """Not by a task, which reads its data first: that is for lengths which only the data know."""
    for overrides in (["engine.max_steps=60"], ["optimizer.lr.decay_steps=50"]):
        with pytest.raises(UsageError, match="optimizer.lr.warmup_steps: 61 is not allowed"):
            load(PretrainConfig, "gpt2-tiny.yaml", [*overrides, "optimizer.lr.warmup_steps=61"])
    for fitting in (
        ["engine.max_steps=60", "optimizer.lr.warmup_steps=60"],
        ["engine.max_steps=60", "optimizer.lr.decay_steps=99", "optimizer.lr.warmup_steps=61"],
        ["engine.max_steps=null", "optimizer.lr.warmup_steps=61"],
    ):
        load(PretrainConfig, "gpt2-tiny.yaml", fitting)


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [("avx2 avx512_bf16", "bf16"), ("amx_bf16 amx_tile", "bf16"), ("avx2 avx512f", "fp32"), (None, "fp32")],
)
def test_auto_is_the_format_of_the_processor(flags, wanted, tmp_path, monkeypatch):
    """It stands in the file alone: a run is trained and resumed in one format."""
    known = tmp_path / "cpuinfo"
    if flags:
        known.write_text(f"model name\t: x\nflags\t\t: fpu {flags}\n")
    monkeypatch.setattr(number_formats, "PROCESSOR", known)
    settings = load(PretrainConfig, "gpt2-laptop.yaml")
    assert settings.precision.dtype == settings.identity()["precision.dtype"] == wanted


def test_readme_lists_every_setting():
    section = README.split("## All settings")[1].split("##")[0]
    assert configs_page.rows(section) == configs_page.expected(describe(PretrainConfig))
