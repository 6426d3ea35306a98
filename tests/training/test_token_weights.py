"""Losses are means over tokens: samples of uneven length, the same whatever the micro-batch, accumulation and number of ranks."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from course_lib.gptsan.run import Gptsan
from course_lib.prefix import single_process_trainer
from course_lib.prefix.model import build
from course_lib.prefix.run import PrefixRun
from course_lib.pretrain.gpt2 import MASKED, Gpt2
from course_lib.pretrain.indexed import IndexedWriter, dtype_for
from course_lib.training import launch, log, nodes, quick
from course_lib.training.run import Run
from course_lib.training.settings import OptimizerConfig, RateConfig
from course_lib.training.trainer import micro_batches_of_rank

from tests.gptsan import test_training as gptsan
from tests.prefix import test_training as prefix
from tests.pretrain import test_training as pretrain
from tests.training.test_reshard import train

SHARED = (
    "engine.max_steps=4", "engine.save_steps=4", "engine.eval_freq=4", "engine.eval_iters=3", "engine.test_iters=0",
    "engine.tracking=[]", "batch.local_size=null", "batch.global_size=4",
)  # fmt: skip
# (ranks, micro-batch): 4 samples at once, by accumulation, by ranks, and by both
LAYOUTS = ((1, 4), (1, 2), (1, 1), (2, 2), (2, 1))
END = 2


def uneven_inputs(folder: Path) -> Path:
    """Token files of documents with 2 to 90 tokens, so that some are longer than a sample, and their tokenizer."""
    pretrain.inputs(folder)
    rng = np.random.default_rng(1)
    with IndexedWriter(folder / "uneven", dtype_for(pretrain.VOCABULARY)) as writer:
        for size in rng.integers(2, 90, 60).tolist():
            ids = np.append(rng.integers(3, 40, size - 1), END)
            writer.append(ids.astype("<u2"), np.array([size]))
    return folder


def pairs(folder: Path) -> Path:
    """A base, and pairs whose targets have one line or many."""
    prefix.inputs(folder)
    lines = [{"prompt": "早稲田大学", "target": "食べた。" * (1 + 5 * (number % 3 == 0))} for number in range(24)]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    (folder / "texts.jsonl").write_text(text, encoding="utf8")
    return folder


def tasks_of(place: Path, run: Path, micro: int) -> dict[str, Run]:
    """A task of each kind, whose samples have uneven lengths; experts have room for every token, routers no loss."""
    more = (*SHARED, f"batch.micro_size={micro}")
    packed = (*more, f"data.input=[{place}/gpt2/uneven]", "data.packing=best-fit")
    neox = ("model.architecture=gpt-neox", "data.mask_loss_at_eod=true", "zero.stage=3")
    return {
        "GPT-2": Gpt2(pretrain.settings(place / "gpt2", run / "gpt2", *packed)),
        "GPT-NeoX": Gpt2(pretrain.settings(place / "gpt2", run / "neox", *packed, *neox)),
        "prefix": PrefixRun(prefix.settings(place / "prefix", run / "prefix", *more, "data.form=pairs", "zero.stage=2")),
        "GPTSAN": Gptsan(gptsan.settings(
            place / "gptsan", run / "gptsan", *more, "loss.router_balance=0", "loss.router_jitter=0", "loss.z_loss=0.1",
            "spout.mode=onehot",
        )),
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs of all kinds."""
    folder = tmp_path_factory.mktemp("tokens")
    for name, inputs in (("gpt2", uneven_inputs), ("prefix", pairs), ("gptsan", gptsan.inputs)):
        (folder / name).mkdir()
        inputs(folder / name)
    for part in ("base", "stage"):
        path = folder / "gptsan" / part / "config.json"
        shape = json.loads(path.read_text(encoding="utf8")) | {
            "train_capacity_factor": 3.0,
            "eval_capacity_factor": 3.0,
        }
        path.write_text(json.dumps(shape), encoding="utf8")
    return folder


@pytest.fixture(scope="module")
def logs(folder: Path) -> dict[tuple[int, int], dict[str, list[dict[str, Any]]]]:
    """The logs of all runs, by layout and kind."""
    found: dict[tuple[int, int], dict[str, list[dict[str, Any]]]] = {}
    for ranks in (1, 2):
        layouts = [layout for layout in LAYOUTS if layout[0] == ranks]
        made = {layout: tasks_of(folder, folder / f"{ranks}-{layout[1]}", layout[1]) for layout in layouts}
        train(
            {f"{layout} {name}": task for layout in layouts for name, task in made[layout].items()}, ranks, resume=False
        )
        for layout in layouts:
            found[layout] = {name: log.read(task.settings.engine.output_dir) for name, task in made[layout].items()}
    return found


def losses(entries: list[dict[str, Any]], kind: str) -> list[float]:
    return [entry["loss"] for entry in entries if entry["kind"] == kind]


@pytest.mark.parametrize("kind", ["GPT-2", "GPT-NeoX", "prefix", "GPTSAN"])
@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_a_step_is_the_same_in_any_micro_batches(logs: Any, layout: tuple[int, int], kind: str) -> None:
    """The losses after the first step depend on its gradient."""
    whole, parts = (logs[each][kind] for each in ((1, 4), layout))
    assert len(losses(whole, "train")) == 4 and len(losses(whole, "eval")) == 1
    assert losses(parts, "train") == pytest.approx(losses(whole, "train"), rel=1e-6, abs=1e-6)
    assert losses(parts, "eval") == pytest.approx(losses(whole, "eval"), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("variable", ["ACCELERATE_MIXED_PRECISION", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"])
def test_variables_of_accelerate_do_not_reach_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "2")
    monkeypatch.setenv("ACCELERATION", "9.81")
    chosen = pretrain.settings(tmp_path, tmp_path)
    environment = launch.environment_of_ranks(chosen, nodes.find(chosen))
    assert variable not in environment and environment["ACCELERATION"] == "9.81"


def test_a_run_does_not_see_the_variables_of_accelerate(
    folder: Path, tmp_path: Path, logs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node whose ranks have them: in bf16, the losses would differ from the third digit on."""
    for name, value in {"MIXED_PRECISION": "bf16", "GRADIENT_ACCUMULATION_STEPS": "3", "USE_CPU": "0"}.items():
        monkeypatch.setenv(f"ACCELERATE_{name}", value)
    task = tasks_of(folder, tmp_path, 4)["GPT-2"]
    train({"again": task}, 1, resume=False)
    assert losses(log.read(tmp_path / "gpt2"), "train") == losses(logs[1, 4]["GPT-2"], "train")


@pytest.mark.parametrize(
    ("numbers", "batches"),
    [
        ((8, 2, 0, 2), [range(2), range(4, 6)]),
        ((8, 2, 1, 2), [range(2, 4), range(6, 8)]),
        ((7, 2, 1, 2), [range(2, 4), range(6, 7)]),
        ((5, 2, 1, 2), [range(2, 4), range(2)]),
        ((3, 8, 0, 1), [range(3)]),
        ((3, 8, 2, 3), [range(3)]),
    ],
)
def test_ranks_take_turns_and_no_held_out_sample_is_left_out(numbers: Any, batches: list[range]) -> None:
    assert micro_batches_of_rank(*numbers) == [[*batch] for batch in batches]


@pytest.mark.parametrize("micro", [1, 2, 3, 4, 16])
def test_the_held_out_loss_of_a_prefix_is_that_of_its_tokens(folder: Path, tmp_path: Path, micro: int) -> None:
    task = tasks_of(folder, tmp_path, 4)["prefix"]
    assert isinstance(task, PrefixRun)
    (_, rows), model = task.rows(), build(task.settings).eval()
    assert len({row.targets for row in rows}) > 1
    nats = 0.0
    with torch.no_grad():
        for row in rows:
            logs = model(torch.tensor([row.ids[:-1]]))[0].log_softmax(-1)
            nats -= sum(logs[place - 1, row.ids[place]].item() for place in range(row.learned, len(row.ids)))
    right = nats / sum(row.targets for row in rows)
    assert single_process_trainer.evaluate(model, rows, micro) == pytest.approx(right, abs=2e-6)
    assert math.isnan(single_process_trainer.evaluate(model, [], micro))


def test_one_process_takes_the_mean_over_all_targets_of_a_step() -> None:
    """Four numbers are learned in one step: at once, in uneven micro-batches, and in micro-batches without a target."""
    settings = OptimizerConfig(
        weight_decay=0, grad_clip=0, epsilon=1e-3, lr=RateConfig(max=0.5, min=0.1, warmup_steps=0)
    )
    found = []
    for micro_batches in ([[1, 2, 4, 8]], [[1], [2, 4, 8]], [[1, 2, 4], [], [8]]):
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(model.weight)

        def loss(numbers: list[int], model: torch.nn.Linear = model) -> torch.Tensor:
            return (
                sum((model.weight.squeeze() - number) ** 2 for number in numbers) / max(len(numbers), 1)
                + 0 * model.weight.sum()
            )

        losses = quick.train(model, loss, [micro_batches] * 2, settings, 2, len)
        found.append([*losses, model.weight.item()])
    assert found[0][0] == (1 + 4 + 16 + 64) / 4
    assert found[1] == pytest.approx(found[0], rel=1e-6) and found[2] == pytest.approx(found[0], rel=1e-6)


def test_micro_batches_of_equal_length_keep_their_loss() -> None:
    """Without a number of targets, each counts the same: bit for bit the sum of the halves."""
    settings = OptimizerConfig()
    model = torch.nn.Linear(1, 1, bias=False)
    weight = model.weight.item()
    (loss,) = quick.train(model, lambda number: (model.weight * number).sum(), [[0.3, 0.7]], settings, 1)
    assert loss == (torch.tensor(weight) * 0.3 / 2).item() + (torch.tensor(weight) * 0.7 / 2).item()


@pytest.mark.parametrize("eod", [False, True])
def test_a_micro_batch_without_targets_costs_nothing(folder: Path, tmp_path: Path, eod: bool) -> None:
    """GPT-2 with nothing but padding behind the first token, or with nothing but ends whose loss is masked."""
    chosen = pretrain.settings(folder / "gpt2", tmp_path, f"data.mask_loss_at_eod={str(eod).lower()}")
    task = Gpt2(chosen)
    batch = {"tokens": torch.tensor([[END, END, END]] if eod else [[END, MASKED, MASKED]])}
    assert task.targets(batch) == 0 and task.loss(task.model(), batch) == 0
    batch = {"tokens": torch.tensor([[END, 5, END], [END, 6, MASKED]])}
    assert task.targets(batch) == (1 if eod else 3)
