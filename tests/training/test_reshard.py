"""Runs that go on with another number of ranks: 2 → 1 → 2, for every ZeRO stage and every kind of run, against unbroken runs."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from course_lib.checkpoints.deepspeed_shards import read_weights
from course_lib.gptsan.task import Gptsan
from course_lib.prefix.task import PrefixTask
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.training import checkpoint, log, run_dir
from course_lib.training.task import Task

from tests.gptsan import test_training as gptsan
from tests.prefix import test_training as prefix
from tests.pretrain import test_training as pretrain
from tests.training import ranks

SCRIPT = Path(__file__).with_name("train_runs.py")
STEPS, SAVED = 6, (2, 4, 6)
SHARED = (
    f"engine.max_steps={STEPS}", "engine.save_steps=2", "engine.keep_checkpoints=null", "engine.eval_freq=0", "engine.tracking=[]",
)  # fmt: skip
# Odd sizes, so that parameters and groups need padding.
PRETRAIN = (*SHARED, "engine.test_iters=0", "model.hidden_size=34", "batch.global_size=8")
PREFIX = (*SHARED, "batch.global_size=4", "batch.local_size=null", "batch.micro_size=1", "model.hidden_dim=15")
EVERY = "zero.stage3_param_persistence_threshold=0"
Make = Callable[..., Task]


def kinds(places: dict[str, Path]) -> dict[str, Make]:
    """Name → a function that makes the task of a run from its folder and overrides."""

    def one(task: Any, module: Any, *fixed: str) -> Make:
        return lambda run, *more: task(module.settings(places[module.__name__], run, *fixed, *more))

    bf16 = "precision.dtype=bf16"
    return {
        "GPT-2, stage 0": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=0"),
        "GPT-2, stage 1": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=1"),
        "GPT-2, stage 1, offload": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=1", "zero.offload_optimizer=true"),
        "GPT-2, stage 2": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=2"),
        "GPT-2, stage 2, offload": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=2", "zero.offload_optimizer=true"),
        "GPT-2, stage 3": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=3"),
        "GPT-2, stage 3, offload": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=3", "zero.offload_optimizer=true", EVERY),
        "GPT-NeoX, stage 3": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=3", "model.architecture=gpt-neox", EVERY),
        "GPT-2, stage 2, bf16": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=2", bf16),
        "GPT-2, stage 3, bf16": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=3", bf16),
        "GPTSAN, stage 2": one(Gptsan, gptsan, *SHARED, "zero.stage=2"),
        "GPTSAN, stage 3": one(Gptsan, gptsan, *SHARED, "zero.stage=3", EVERY),
        "prefix, stage 1": one(PrefixTask, prefix, *PREFIX, "zero.stage=1"),
        "prefix, stage 3": one(PrefixTask, prefix, *PREFIX, "zero.stage=3", EVERY),
    }


NAMES = list(kinds({module.__name__: Path() for module in (pretrain, gptsan, prefix)}))


def train(tasks: dict[str, Task], number: int, resume: bool) -> None:
    """Train all runs on `number` ranks, in one group of processes."""
    words = ["RESUME" if resume else "NEW"]
    for task in tasks.values():
        task.check()
        folder = task.settings.engine.output_dir
        batch = task.settings.batch.resolve(number)
        with run_dir.sole_user(folder):
            run_dir.prepare(task, run_dir.Resolved(batch, task.steps(batch)), resume, lambda _: None)
        words += [task.name(), str(folder)]
    ranks.launch(SCRIPT, *words, ranks=number)


def keep(run: Path, step: int) -> None:
    """Removes the checkpoints after a step, and what came after them from the log."""
    for path in (run / checkpoint.FOLDER).glob("checkpoint-*"):
        if checkpoint.step_of(path) > step:
            shutil.rmtree(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Task], dict[str, Task]]:
    """Unbroken runs on two ranks; and copies of them that go on from step 2 on one rank, and from step 4 on two."""
    folder = tmp_path_factory.mktemp("reshard")
    places = {}
    for module in (pretrain, gptsan, prefix):
        places[module.__name__] = folder / module.__name__
        places[module.__name__].mkdir()
        module.inputs(places[module.__name__])
    made = kinds(places)
    unbroken = {name: make(folder / "unbroken" / str(number)) for number, (name, make) in enumerate(made.items())}
    train(unbroken, 2, resume=False)
    shutil.copytree(folder / "unbroken", folder / "broken")
    broken = {name: make(folder / "broken" / str(number)) for number, (name, make) in enumerate(made.items())}
    for number, step in ((1, 2), (2, 4)):
        for task in broken.values():
            keep(task.settings.engine.output_dir, step)
        train(broken, number, resume=True)
    return unbroken, broken


def losses(run: Path) -> list[float]:
    return [entry["loss"] for entry in log.read(run) if entry["kind"] == "train"]


def difference(one: Path, two: Path) -> float:
    """The largest difference between the fp32 weights of two checkpoints, as a share of the largest weight."""
    before, after = (
        {name: value.contiguous() for name, value in read_weights(each).tensors.items()} for each in (one, two)
    )
    assert before.keys() == after.keys()
    largest = max(value.abs().max() for value in before.values())
    return float(max((before[name] - after[name]).abs().max() for name in before) / largest)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_goes_on_with_one_rank_and_with_two_again(runs: Any, name: str) -> None:
    unbroken, broken = (each[name].settings.engine.output_dir for each in runs)
    counts = [[checkpoint.ranks_of(path) for path in checkpoint.whole_checkpoints(run)] for run in (unbroken, broken)]
    assert counts == [[2, 2, 2], [2, 1, 2]]
    before, after = losses(unbroken), losses(broken)
    print(f"NOISE {name}: loss {max(abs(a - b) for a, b in zip(before, after, strict=True)):.1e}", end=", weights")
    for step in SAVED:
        print(
            f" {difference(*(run / checkpoint.FOLDER / f'checkpoint-{step}' for run in (unbroken, broken))):.1e}",
            end="",
        )
    print()
    assert before[:2] == after[:2]
    assert after == pytest.approx(before, rel=1e-5)
