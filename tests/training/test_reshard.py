"""Runs that go on with other numbers of ranks, for every ZeRO stage and every kind of run, against unbroken runs."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from course_lib.checkpoints.training_state import read_weights
from course_lib.gptsan.run import GPTSanRun
from course_lib.prefix.run import PrefixRun
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training import checkpoint, log
from course_lib.training.run import Run

from tests.gptsan import test_training as gptsan
from tests.prefix import test_training as prefix
from tests.pretrain import test_training as pretrain
from tests.training import ranks

SCRIPT = Path(__file__).with_name("train_runs.py")
STEPS = 6
# Numbers of ranks for the steps 1 and 2, 3 and 4, 5 and 6
PATHS = ((2, 1, 2), (2, 4, 2))
SHARED = (
    f"engine.max_steps={STEPS}", "engine.save_steps=2", "engine.keep_checkpoints=null", "engine.eval_freq=0", "engine.tracking=[]",
)  # fmt: skip
# Odd sizes, so that parameters and groups need padding.
PRETRAIN = (*SHARED, "engine.test_iters=0", "model.hidden_size=34", "batch.global_size=8")
PREFIX = (*SHARED, "batch.global_size=4", "batch.local_size=null", "batch.micro_size=1", "model.hidden_dim=15")
EVERY = "zero.stage3_param_persistence_threshold=0"
Make = Callable[..., Run]


def kinds(sources: dict[str, Path]) -> dict[str, Make]:
    """Name → a function that makes the task of a run from its folder and overrides."""

    def one(task: Any, module: Any, *fixed: str) -> Make:
        return lambda run, *more: task(module.settings(sources[module.__name__], run, *fixed, *more))

    bf16 = "precision.dtype=bf16"
    return {
        "GPT-2, stage 0": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=0"),
        "GPT-2, stage 1": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=1"),
        "GPT-2, stage 2, offload": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=2", "zero.offload_optimizer=true"),
        "GPT-2, stage 3, offload": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=3", "zero.offload_optimizer=true", EVERY),
        "GPT-2, stage 2, bf16": one(Gpt2, pretrain, *PRETRAIN, "zero.stage=2", bf16),
        "GPTSAN, stage 3": one(GPTSanRun, gptsan, *SHARED, "zero.stage=3", EVERY),
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
        words += [run.command, str(file)]
    ranks.launch(SCRIPT, *words, ranks=number, groups=len(runs))


def keep(run: Path, step: int) -> None:
    """Removes the checkpoints after a step."""
    for path in (run / checkpoint.FOLDER).glob("checkpoint-*"):
        if checkpoint.step_of(path) > step:
            shutil.rmtree(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Run]]:
    """Unbroken runs on two ranks; and for each path copies of them that go on with other numbers of ranks."""
    folder = tmp_path_factory.mktemp("reshard")
    sources = {}
    for module in (pretrain, gptsan, prefix):
        sources[module.__name__] = folder / module.__name__
        sources[module.__name__].mkdir()
        module.inputs(sources[module.__name__])
    made = kinds(sources)

    def runs_of(name: str, *more: str) -> dict[str, Run]:
        return {
            kind: make(folder / name / str(number), *(more if "GPT-2" in kind else ()))
            for number, (kind, make) in enumerate(made.items())
        }

    train(runs_of("unbroken"), 2, resume=False)
    for path in PATHS:
        broken = folder / str(path)
        shutil.copytree(folder / "unbroken", broken)
        for number, step in zip(path[1:], (2, 4), strict=True):
            for run in broken.glob("*/"):
                keep(run, step)
            # On one rank, larger micro-batches too, where the loss is a mean over equally many tokens of each sample.
            more = ["batch.micro_size=4"] if number == 1 else ["batch.micro_size=1"] if number == 4 else []
            train(runs_of(broken.name, *more), number, resume=True)
    return {name: runs_of(name) for name in ("unbroken", *map(str, PATHS))}


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
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", NAMES)
def test_a_run_goes_on_with_other_ranks(runs: Any, name: str, path: tuple[int, int, int]) -> None:
    unbroken, broken = (runs[each][name].settings.engine.output_dir for each in ("unbroken", str(path)))
    counts = [[checkpoint.ranks_of(each) for each in checkpoint.whole_checkpoints(run)] for run in (unbroken, broken)]
    assert counts == [[2, 2, 2], [*path]]
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
