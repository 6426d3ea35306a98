"""Losses are means over tokens: samples of uneven length, the same whatever the micro-batch, accumulation and number of ranks."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.gptsan.run import GPTSanRun
from course_lib.models import frozen_base
from course_lib.prefix.files import read
from course_lib.prefix.model import PrefixModel
from course_lib.prefix.run import PrefixRun
from course_lib.pretrain.gpt2 import MASKED, Gpt2
from course_lib.settings import config
from course_lib.training import log
from course_lib.training.loop import train
from course_lib.training.run import Run

from tests.gptsan import test_training as gptsan
from tests.prefix import test_training as prefix
from tests.pretrain import test_training as pretrain
from tests.training import ranks

# A script that trains several runs in the same processes.
SCRIPT = Path(__file__).with_name("train_runs.py")
SHARED = (
    "engine.max_steps=4", "engine.save_steps=4", "engine.eval_freq=4", "engine.eval_iters=3", "engine.test_iters=0",
    "engine.tracking=[]", "batch.local_size=null", "batch.global_size=4",
)  # fmt: skip
# (ranks, micro-batch): 4 samples at once, by accumulation, and by ranks and accumulation
LAYOUTS = ((1, 4), (1, 1), (2, 1))


def pairs(folder: Path) -> Path:
    """A base, and pairs whose targets have one line or many."""
    prefix.inputs(folder)
    lines = [{"prompt": "早稲田大学", "target": "食べた。" * (1 + 5 * (number % 3 == 0))} for number in range(24)]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    (folder / "texts.jsonl").write_text(text, encoding="utf8")
    return folder


def runs_of(source: Path, run: Path, micro: int, number: int = 1) -> dict[str, Run]:
    """A run of each kind, whose samples have uneven lengths; experts have capacity for every token, routers no loss."""
    more = (*SHARED, f"batch.micro_size={micro}", f"launch.ranks={number}")
    packed = (*more, f"data.input=[{source}/gpt2/uneven]", "data.packing=best-fit")
    neox = ("model.architecture=gpt-neox", "data.mask_loss_at_eod=true")
    # With this offload, one rank has DeepSpeed, too: stage 3 draws the weights of a new model in another order.
    sharded = ("zero.stage=3", "zero.offload_param=true")
    return {
        "GPT-2": Gpt2(pretrain.settings(source / "gpt2", run / "gpt2", *packed)),
        "GPT-NeoX": Gpt2(pretrain.settings(source / "gpt2", run / "neox", *packed, *neox, *sharded)),
        "prefix": PrefixRun(prefix.settings(source / "prefix", run / "prefix", *more, "data.form=pairs", "zero.stage=2")),
        "GPTSAN": GPTSanRun(gptsan.settings(
            source / "gptsan", run / "gptsan", *more, "loss.router_balance=0", "loss.router_jitter=0", "loss.z_loss=0.1",
            "spout.mode=onehot",
        )),
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs of all kinds."""
    folder = tmp_path_factory.mktemp("tokens")
    for name, inputs in (("gpt2", pretrain.uneven_inputs), ("prefix", pairs), ("gptsan", gptsan.inputs)):
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


def train_on_two_ranks(runs: dict[str, Run]) -> None:
    """Train runs one after the other, in the same two processes."""
    words = ["NEW"]
    for run in runs.values():
        folder = run.settings.engine.output_dir
        folder.parent.mkdir(parents=True, exist_ok=True)
        file = folder.with_suffix(".yaml")
        file.write_text(config.to_yaml(run.settings), encoding="utf8")
        words += [run.command, str(file)]
    ranks.launch(SCRIPT, *words, ranks=2, groups=len(runs))


@pytest.fixture(scope="module")
def made(folder: Path) -> dict[tuple[int, int], dict[str, Run]]:
    """Runs that have been trained, by layout and kind."""
    found = {(number, micro): runs_of(folder, folder / f"{number}-{micro}", micro, number) for number, micro in LAYOUTS}
    for (number, _), runs in found.items():
        if number == 1:
            for run in runs.values():
                train(run, on_message=lambda _: None)
    two = {layout: runs for layout, runs in found.items() if layout[0] == 2}
    train_on_two_ranks({f"{layout} {name}": run for layout, runs in two.items() for name, run in runs.items()})
    return found


@pytest.fixture(scope="module")
def logs(made: dict[tuple[int, int], dict[str, Run]]) -> dict[tuple[int, int], dict[str, list[dict[str, Any]]]]:
    """Their logs."""
    return {
        layout: {name: log.read(run.settings.engine.output_dir) for name, run in runs.items()}
        for layout, runs in made.items()
    }


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


def test_a_run_does_not_see_the_variables_of_accelerate(
    folder: Path, tmp_path: Path, logs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are for programs that use it: in bf16, the losses would differ from the third digit on."""
    for name, value in {"MIXED_PRECISION": "bf16", "GRADIENT_ACCUMULATION_STEPS": "3", "USE_CPU": "0"}.items():
        monkeypatch.setenv(f"ACCELERATE_{name}", value)
    trained = train(runs_of(folder, tmp_path, 4)["GPT-2"], on_message=lambda _: None)
    assert losses(trained.log, "train") == losses(logs[1, 4]["GPT-2"], "train")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_held_out_loss_of_a_prefix_is_that_of_its_tokens(
    tmp_path: Path, made: Any, logs: Any, layout: tuple[int, int]
) -> None:
    """Row by row, without padding."""
    run = made[layout]["prefix"]
    assert isinstance(run, PrefixRun)
    run.export(tmp_path / "prefix")
    rows: Any = read(tmp_path / "prefix").values
    model: Any = PrefixModel(frozen_base.load(run.base), lambda: rows)  # type: ignore[arg-type]
    held_out = run.rows()[1]
    assert len({row.targets for row in held_out}) > 1
    nats = 0.0
    with torch.no_grad():
        for row in held_out:
            found = model(torch.tensor([row.ids[:-1]]))[0].log_softmax(-1)
            nats -= sum(found[at - 1, row.ids[at]].item() for at in range(row.learned, len(row.ids)))
    right = nats / sum(row.targets for row in held_out)
    (measured,) = losses(logs[layout]["prefix"], "eval")
    assert measured == pytest.approx(right, abs=2e-6)


@pytest.mark.parametrize("eod", [False, True])
def test_a_micro_batch_without_targets_costs_nothing(folder: Path, tmp_path: Path, eod: bool) -> None:
    """GPT-2 with nothing but padding behind the first token, or with nothing but ends whose loss is masked."""
    run = Gpt2(pretrain.settings(folder / "gpt2", tmp_path, f"data.mask_loss_at_eod={str(eod).lower()}"))
    end = pretrain.END
    batch = {"tokens": torch.tensor([[end, end, end]] if eod else [[end, MASKED, MASKED]])}
    assert run.targets(batch) == 0 and run.loss(run.model(), batch) == 0
    batch = {"tokens": torch.tensor([[end, 5, end], [end, 6, MASKED]])}
    assert run.targets(batch) == (1 if eod else 3)
