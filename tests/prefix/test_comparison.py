"""Runs over seeds and learning rates, LoRA among them, and the base without training."""

import pytest
import torch
from course_lib.models import frozen_base
from course_lib.prefix import comparison, lora
from course_lib.prefix.comparison import SEEDS, at_best_rate, over_rates, over_seeds, untrained
from course_lib.prefix.single_process_trainer import train
from peft import get_peft_model_state_dict

from tests.prefix import bases
from tests.prefix.test_training import place, settings  # noqa: F401

SHORT = ("engine.max_steps=3", "optimizer.lr.warmup_steps=1", "model.warm_start_steps=0")


@pytest.fixture
def short(place, tmp_path, monkeypatch):  # noqa: F811
    # In this process: each worker would import transformers first.
    monkeypatch.setattr(comparison, "trainings_at_once", lambda *_: 1)
    return settings(place, tmp_path, *SHORT)


def test_runs_over_seeds_are_single_runs_with_these_seeds(short, place, tmp_path):  # noqa: F811
    (found,) = over_seeds(short, {"P = 2": ["model.length=2"]}, seeds=(1, 4)).values()
    alone = train(settings(place, tmp_path, *SHORT, "model.length=2", "engine.seed=4"))
    assert found.runs[1].losses == alone.losses != found.runs[0].losses
    first, second = (run.held_out for run in found.runs)
    assert found.held_out == pytest.approx(((first + second) / 2, abs(first - second) / 2**0.5))


def test_each_case_gets_its_best_rate_and_no_run_twice(short):
    cases = {"P = 2": ["model.length=2", "optimizer.lr.min=0"], "P = 3": ["model.length=3", "optimizer.lr.min=0"]}
    tried = over_rates(short, cases, {"P = 2": [1e-12, 3e-2], "P = 3": [3e-2, 1e-12]})
    found = at_best_rate(short, cases, tried, seeds=(SEEDS[0], 7))
    for name, runs in found.items():
        assert runs.runs[0] is tried[name][3e-2] and len(runs.runs) == 2
        assert runs.runs[0].losses != runs.runs[1].losses


@pytest.mark.parametrize("family", bases.FAMILIES)
def test_lora_starts_from_the_base_and_trains_nothing_of_it(short, tmp_path, family):
    base = bases.folder(tmp_path, family)
    given = settings(short.data.input.parent, tmp_path, f"model.base={base}", "model.method=full", "engine.max_steps=3")
    ids = torch.tensor([[5, 6, 7]])
    start = lora.builder(2)(given)
    torch.testing.assert_close(start(ids), frozen_base.load(base)(ids).logits)
    model = train(given, lora.builder(2)).model
    assert model
    trained = {name: each for name, each in model.base.named_parameters() if each.requires_grad}
    # 3 layers: A [2, 32] and B [3 · 32, 2]
    assert sum(each.numel() for each in trained.values()) == 3 * 2 * (32 + 96)
    assert any(each.abs().sum() > 0 for name, each in trained.items() if "lora_B" in name)
    kept = {name.replace(".base_layer", ""): each for name, each in model.base.named_parameters()}
    assert all(torch.equal(kept[name], each) for name, each in frozen_base.load(base).named_parameters())
    # peft itself finds its adapter.
    assert len(get_peft_model_state_dict(model.base)) == len(trained)


def test_the_base_without_training(short):
    still = ["model.method=full", "optimizer.lr.max=1e-12", "optimizer.lr.min=0"]
    (run,) = over_seeds(short, {"full": still}, seeds=(1,))["full"].runs
    assert untrained(short) == pytest.approx((run.held_out, run.matches), abs=1e-5)
