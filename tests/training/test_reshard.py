"""Runs that go on with another number of ranks: 2 → 1 → 2, for every ZeRO stage and every kind of run, against unbroken runs."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from course_lib.checkpoints.deepspeed_shards import read_weights
from course_lib.gptsan.run import Gptsan
from course_lib.prefix.run import PrefixRun
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training import checkpoint, log, reshard
from course_lib.training.run import Run
from hypothesis import given
from hypothesis import strategies as st

from tests.gptsan import test_training as gptsan
from tests.prefix import test_training as prefix
from tests.pretrain import test_training as pretrain
from tests.training import ranks

SCRIPT = Path(__file__).with_name("train_runs.py")
STEPS = 6
SHARED = (
    f"engine.max_steps={STEPS}", "engine.save_steps=2", "engine.keep_checkpoints=null", "engine.eval_freq=0", "engine.tracking=[]",
)  # fmt: skip
# Odd sizes, so that parameters and groups need padding.
PRETRAIN = (*SHARED, "engine.test_iters=0", "model.hidden_size=34", "batch.global_size=8")
PREFIX = (*SHARED, "batch.global_size=4", "batch.local_size=null", "batch.micro_size=1", "model.hidden_dim=15")
EVERY = "zero.stage3_param_persistence_threshold=0"
Make = Callable[..., Run]


def kinds(places: dict[str, Path]) -> dict[str, Make]:
    """Name → a function that makes the task of a run from its folder and overrides."""

    def one(task: Any, module: Any, *fixed: str) -> Make:
        return lambda run, *more: task(module.settings(places[module.__name__], run, *fixed, *more))

    bf16 = "precision.dtype=bf16"
    return {
        "GPT-2, stage 1": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=1"),
        "GPT-2, stage 2, offload": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=2", "zero.offload_optimizer=true"),
        "GPT-2, stage 3, offload": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=3", "zero.offload_optimizer=true", EVERY),
        "GPT-2, stage 2, bf16": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=2", bf16),
        "GPTSAN, stage 3": one(Gptsan, gptsan, *SHARED, "zero.stage=3", EVERY),
        "prefix, stage 3": one(PrefixRun, prefix, *PREFIX, "zero.stage=3", EVERY),
    }


NAMES = list(kinds({module.__name__: Path() for module in (pretrain, gptsan, prefix)}))


def train(runs: dict[str, Run], number: int, resume: bool) -> None:
    """Train all runs on `number` ranks, in one group of processes."""
    words = ["RESUME" if resume else "NEW"]
    for run in runs.values():
        folder = run.settings.engine.output_dir
        folder.parent.mkdir(parents=True, exist_ok=True)
        file = folder.with_suffix(".yaml")
        launch = replace(run.settings.launch, ranks=number)
        file.write_text(config.to_yaml(replace(run.settings, launch=launch)), encoding="utf8")
        words += [run.verb, str(file)]
    ranks.launch(SCRIPT, *words, ranks=number)


def keep(run: Path, step: int) -> None:
    """Removes the checkpoints after a step."""
    for path in (run / checkpoint.FOLDER).glob("checkpoint-*"):
        if checkpoint.step_of(path) > step:
            shutil.rmtree(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Run], dict[str, Run]]:
    """Unbroken runs on two ranks; and copies of them that go on from step 2 on one rank, and from step 4 on two."""
    folder = tmp_path_factory.mktemp("reshard")
    places = {}
    for module in (pretrain, gptsan, prefix):
        places[module.__name__] = folder / module.__name__
        places[module.__name__].mkdir()
        module.inputs(places[module.__name__])
    made = kinds(places)

    def tasks(name: str, *more: str) -> dict[str, Run]:
        return {
            kind: make(folder / name / str(number), *(more if "GPT-2" in kind else ()))
            for number, (kind, make) in enumerate(made.items())
        }

    train(tasks("unbroken"), 2, resume=False)
    shutil.copytree(folder / "unbroken", folder / "broken")
    # On one rank, larger micro-batches too, where the loss is a mean over equally many tokens of each sample.
    for ranks_now, step, more in ((1, 2, ("batch.micro_size=4",)), (2, 4, ())):
        broken = tasks("broken", *more)
        for task in broken.values():
            keep(task.settings.engine.output_dir, step)
        train(broken, ranks_now, resume=True)
    return tasks("unbroken"), broken


def losses(run: Path) -> list[float]:
    return [entry["loss"] for entry in log.read(run) if entry["kind"] == "train"]


def difference(one: Path, two: Path) -> float:
    """The largest difference between the fp32 weights of two checkpoints, as a share of the largest weight."""
    before, after = (
        {name: value.contiguous().detach() for name, value in read_weights(each).tensors.items()} for each in (one, two)
    )
    assert before.keys() == after.keys()
    largest = max(value.abs().max() for value in before.values())
    return float(max((before[name] - after[name]).abs().max() for name in before) / largest)


@pytest.mark.rehearse
@pytest.mark.parametrize("name", NAMES)
def test_a_run_goes_on_with_one_rank_and_with_two_again(runs: Any, name: str) -> None:
    unbroken, broken = (each[name].settings.engine.output_dir for each in runs)
    counts = [[checkpoint.ranks_of(path) for path in checkpoint.whole_checkpoints(run)] for run in (unbroken, broken)]
    assert counts == [[2, 2, 2], [2, 1, 2]]
    # With moments of the wrong parameters, weights would differ by about the learning rate, 1e-2.
    # GPTSAN with four seeds of either order of its samples: losses differ by up to 2e-5, weights by up to 4e-4.
    loss_noise, weight_noise = (1e-5, 1e-4)
    if "bf16" in name:
        loss_noise, weight_noise = 1e-4, 2e-2
    if "GPTSAN" in name:
        loss_noise, weight_noise = 1e-4, 1e-3
    assert losses(broken) == pytest.approx(losses(unbroken), rel=loss_noise)
    ends = (run / checkpoint.FOLDER / f"checkpoint-{STEPS}" for run in (unbroken, broken))
    assert difference(*ends) < weight_noise


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 5), st.integers(1, 5))
def test_flat_groups_are_cut_anew(sizes: list[int], before: int, after: int) -> None:
    """Stages 1 and 2: the padded weights and moments of a group, for any numbers of ranks."""
    values = torch.arange(1.0, sum(sizes) + 1)

    def cut(whole: torch.Tensor, number: int) -> list[torch.Tensor]:
        padding = -len(whole) % (2 * number)
        return list(torch.nn.functional.pad(whole, (0, padding)).chunk(number))

    def shard(number: int, rank: int) -> dict[str, Any]:
        flat = cut(values, number)[rank]
        # DeepSpeed saves the moments with the padding and the weights without it.
        weights = flat[: max(0, min(len(flat), len(values) - rank * len(flat)))]
        state = {"step": torch.tensor(7.0), "exp_avg": -flat, "exp_avg_sq": flat * flat}
        base = {"state": {0: state}, "param_groups": [{"lr": 0.1, "params": [0]}]}
        return {"loss_scaler": "scaler", "single_partition_of_fp32_groups": [weights], "base_optimizer_state": base}

    old = [shard(before, rank) for rank in range(before)]
    for rank, wanted in enumerate(cut(values, after)):
        engine = SimpleNamespace(optimizer=SimpleNamespace(single_partition_of_fp32_groups=[wanted]))
        new = reshard._stage_1_or_2(engine, Path(), old, rank)
        state = new["base_optimizer_state"]["state"][0]
        assert torch.equal(new["single_partition_of_fp32_groups"][0], wanted)
        assert torch.equal(state["exp_avg"], -wanted) and torch.equal(state["exp_avg_sq"], wanted * wanted)
        assert state["step"] == 7 and new["loss_scaler"] == "scaler"
