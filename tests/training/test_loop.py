"""`train(run)` in this process: each kind of run for a few steps, what it leaves in the process, and how it fails."""

import os
import random
import resource
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from course_lib.checkpoints.training_state import read_weights
from course_lib.errors import CourseError, UsageError
from course_lib.gptsan.config import GPTSanRunConfig
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.run import GPTSanRun
from course_lib.models import frozen_base
from course_lib.prefix.files import read
from course_lib.prefix.model import PrefixModel
from course_lib.prefix.run import PrefixRun
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training import checkpoint, log, loop
from course_lib.training.loop import Trained, train
from course_lib.training.ranks import Rank
from course_lib.training.run import Run
from transformers import AutoModelForCausalLM

from tests.gptsan import test_training as gptsan
from tests.prefix import test_training as prefix
from tests.pretrain import test_training as pretrain
from tests.training import by_hand, toy_run
from tests.training.toy_run import Numbers

STEPS, HALF = 6, 3
SHARED = (
    "launch.ranks=1", f"engine.max_steps={STEPS}", f"engine.save_steps={HALF}", "engine.eval_freq=3",
    "engine.eval_iters=1", "engine.test_iters=0", "engine.tracking=[]", "batch.local_size=null", "batch.global_size=4",
)  # fmt: skip


def gpt2(source: Path, folder: Path, *overrides: str) -> Gpt2:
    dropout = "model.hidden_dropout_prob=0.1", "model.attention_probs_dropout_prob=0.1"
    return Gpt2(pretrain.settings(source / "gpt2", folder, *SHARED, *dropout, *overrides))


def best_fit(source: Path, folder: Path, *overrides: str) -> Gpt2:
    return gpt2(source, folder, f"data.input=[{source}/gpt2/uneven]", "data.packing=best-fit", *overrides)


def neox(source: Path, folder: Path) -> Gpt2:
    return best_fit(source, folder, "model.architecture=gpt-neox", "model.rotary_pct=0.5", "data.mask_loss_at_eod=true")


def with_muon(source: Path, folder: Path) -> Gpt2:
    return gpt2(source, folder, "optimizer.name=muon")


def new_gptsan(source: Path, folder: Path) -> GPTSanRun:
    values = config.to_dict(gptsan.settings(source / "gptsan", folder, *SHARED, "spout.mode=none"))
    shape = {
        "vocab_size": 430, "max_position_embeddings": 48, "d_model": 16, "d_ff": 32, "d_ext": 24, "d_spout": 8,
        "num_switch_layers": 1, "num_heads": 2, "num_experts": 2,
    }  # fmt: skip
    values["model"] = {"shape": shape}
    values["data"]["tokenizer"] = str(source / "gptsan" / "words")
    return GPTSanRun(config.build(GPTSanRunConfig, values))


def extra_stage(source: Path, folder: Path) -> GPTSanRun:
    return GPTSanRun(gptsan.settings(source / "gptsan", folder, *SHARED, "spout.mode=onehot"))


def a_prefix(source: Path, folder: Path) -> PrefixRun:
    return PrefixRun(prefix.settings(source / "prefix", folder, *SHARED, "model.dropout=0.2"))


def whole_base(source: Path, folder: Path) -> PrefixRun:
    return PrefixRun(prefix.settings(source / "prefix", folder, *SHARED, "model.method=full"))


KINDS: dict[str, Callable[[Path, Path], Run]] = {
    "GPT-2": gpt2, "best-fit": best_fit, "GPT-NeoX": neox, "Muon": with_muon, "new GPTSAN": new_gptsan,
    "extra stage": extra_stage, "prefix": a_prefix, "full": whole_base,
}  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs of all kinds."""
    folder = tmp_path_factory.mktemp("toys")
    for name, inputs in (("gpt2", pretrain.uneven_inputs), ("prefix", prefix.inputs), ("gptsan", gptsan.inputs)):
        (folder / name).mkdir()
        inputs(folder / name)
    return folder


def ignore(_line: str) -> None:
    pass


@dataclass
class Made:
    """A run of a kind, trained to its end without a break."""

    run: Run
    trained: Trained
    said: list[str]  # to on_message
    printed: str

    @property
    def folder(self) -> Path:
        return self.trained.folder


@pytest.fixture(scope="module", params=KINDS)
def made(request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    run = KINDS[request.param](source, tmp_path_factory.mktemp("runs") / "run")
    said: list[str] = []
    printed = StringIO()
    with unchanged_process(), redirect_stdout(printed), redirect_stderr(printed):
        trained = train(run, on_message=said.append)
    return Made(run, trained, said, printed.getvalue())


def losses(trained: Trained, kind: str = "train") -> list[float]:
    return [entry["loss"] for entry in trained.log if entry["kind"] == kind]


def test_a_run_is_what_pytorch_computes_by_hand(made: Made) -> None:
    assert losses(made.trained) == pytest.approx(by_hand.train(made.run, STEPS)[0], rel=1e-5)
    assert made.trained.steps == STEPS and made.trained.goes_on


def test_a_run_leaves_two_whole_checkpoints_and_its_log(made: Made) -> None:
    whole = checkpoint.whole_checkpoints(made.folder)
    assert [checkpoint.step_of(each) for each in whole] == [STEPS, HALF]
    assert {path.name for path in made.folder.iterdir()} - {".lock", "index-cache"} == {
        "checkpoints", "checkpoints.json", "config.yaml", "data.json", "deepspeed.json", "log.jsonl", "tokenizer",
    }  # fmt: skip
    assert log.read(made.folder) == made.trained.log
    assert [(entry["kind"], entry["step"]) for entry in made.trained.log if entry["kind"] == "eval"] == [
        ("eval", HALF), ("eval", STEPS),
    ]  # fmt: skip


def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(made: Made, tmp_path: Path) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "run")
    shutil.rmtree(checkpoint.at(folder, STEPS))
    again = moved(made.run, folder)
    with pytest.raises(UsageError, match="holds a run; --resume continues it"):
        train(again, on_message=ignore)
    resumed = train(again, resume=True, on_message=ignore)
    for kind in ("train", "eval"):
        assert losses(resumed, kind) == losses(made.trained, kind)
    before, after = (read_weights(checkpoint.at(each, STEPS)).tensors for each in (made.folder, folder))
    assert before and before.keys() == after.keys()
    assert all(torch.equal(before[name].contiguous(), after[name].contiguous()) for name in before)


def moved(run: Run, folder: Path) -> Run:
    """The same run in another folder."""
    return type(run)(config.build(run.settings_class, config.to_dict(run.settings), [f"engine.output_dir={folder}"]))


def exported(run: Run, target: Path) -> Any:
    """The model that a run exports, as its loss calls it."""
    run.export(target)
    if isinstance(run, GPTSanRun):
        return GPTSanForCausalLM.from_pretrained(target)
    if isinstance(run, PrefixRun) and run.settings.model.method == "full":
        return PrefixModel(AutoModelForCausalLM.from_pretrained(target), None)
    if isinstance(run, PrefixRun):
        rows: Any = read(target).values
        return PrefixModel(frozen_base.load(run.base), lambda: rows)  # type: ignore[arg-type]
    return AutoModelForCausalLM.from_pretrained(target)


def test_the_exported_model_is_the_one_whose_loss_was_measured(made: Made, tmp_path: Path) -> None:
    model = exported(made.run, tmp_path / "model").eval()
    measured = losses(made.trained, "eval")[-1]
    assert by_hand.held_out(made.run, model, 4) == pytest.approx(measured, abs=1e-5)


def test_a_run_of_a_given_time(source: Path, tmp_path: Path) -> None:
    overrides = (
        "engine.max_steps=null",
        "engine.max_seconds=0.3",
        "optimizer.lr.warmup_steps=null",
        "engine.save_steps=1000",
    )
    run = gpt2(source, tmp_path / "run", *overrides)
    trained = train(run, on_message=ignore)
    rates = [entry["learning_rate"] for entry in trained.log if entry["kind"] == "train"]
    assert len(rates) == trained.steps > 2 and rates[-1] == run.settings.optimizer.lr.min
    assert [checkpoint.step_of(each) for each in checkpoint.whole_checkpoints(trained.folder)] == [trained.steps]
    # A run that has had its time is at its end.
    assert train(run, resume=True, on_message=ignore) == trained


def process_facts() -> dict[str, Any]:
    """What a training could leave behind in this process."""
    return {
        "python": random.getstate(),
        "numpy": str(np.random.get_state()),
        "torch": torch.get_rng_state().tolist(),
        "threads of torch": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "threads": threading.enumerate(),
        "handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "environment": dict(os.environ),
        "group": dist.is_initialized(),
        "excepthook": sys.excepthook,
        "folder": Path.cwd(),
    }


@contextmanager
def unchanged_process() -> Iterator[None]:
    """A block after which this process is as before."""
    before = process_facts()
    try:
        yield
    finally:
        after = process_facts()
        assert not [name for name in before if after[name] != before[name]]


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_a_process_that_has_trained_is_as_before(tmp_path: Path, gradients: bool, fails: bool) -> None:
    """Also if it had switched gradients off, and has threads and random numbers of its own."""

    def disturb(_number: int) -> None:
        assert torch.is_grad_enabled() and torch.get_num_threads() == 1
        random.random(), np.random.random(), torch.rand(1)
        if fails:
            raise KeyError

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    random.seed(5), np.random.seed(6), torch.manual_seed(7)
    try:
        with torch.set_grad_enabled(gradients), unchanged_process():
            try:
                train(Numbers(toy_run.settings(tmp_path), before_loss=disturb), on_message=ignore)
            except KeyError:
                assert fails
    finally:
        torch.set_num_threads(threads)


def test_a_run_may_train_in_a_thread_of_a_kernel(tmp_path: Path) -> None:
    """Where Python allows no signal handlers."""
    found: list[Trained] = []
    thread = threading.Thread(
        target=lambda: found.append(train(Numbers(toy_run.settings(tmp_path)), on_message=ignore))
    )
    with unchanged_process():
        thread.start()
        thread.join()
    assert found[0].steps == 6


def test_a_run_says_each_line_of_its_log_and_nothing_else(made: Made) -> None:
    # An evaluation comes behind its step; the log that is returned has it before.
    lines = [*filter(None, [made.run.summary()]), *map(log.line, made.trained.log)]
    assert sorted(made.said) == sorted(lines) and made.printed == ""


def test_by_default_it_says_them_on_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train(Numbers(toy_run.settings(tmp_path)))
    printed = capfd.readouterr()
    assert printed.out.count("[train] global step ") == 6 and printed.err == ""


def test_a_step_is_the_mean_over_its_targets_in_any_micro_batches(tmp_path: Path) -> None:
    """Of four samples, of which one has no number and one has three."""
    found = {}
    for micro in (1, 2, 4):
        run = Numbers(toy_run.settings(tmp_path / str(micro), f"batch.micro_size={micro}"))
        found[micro] = [*losses(train(run, on_message=ignore)), run.export(tmp_path)]
    alone, model = by_hand.train(Numbers(toy_run.settings(tmp_path, "batch.micro_size=4")), 6)
    assert alone[0] == pytest.approx((1 + 4 + 16 + 64 + 9 + 25) / 6, rel=1e-6) and alone[-1] < alone[0]
    for micro in (1, 2, 4):
        assert found[micro] == pytest.approx([*alone, float(model.weight.detach().mean())], rel=1e-5)


@pytest.mark.parametrize(("samples", "micro"), [(7, 1), (7, 2), (7, 4), (3, 4), (1, 1), (20, 4)])
def test_no_held_out_sample_is_left_out_or_counted_twice(samples: int, micro: int, tmp_path: Path) -> None:
    """Of ranks, of which the first two have more micro-batches than the third."""
    rows = [[float(number)] * (number % 3) for number in range(samples)]
    run = Numbers(toy_run.settings(tmp_path), held_out=rows)
    data, batch = (
        run.data(1),
        toy_run.settings(tmp_path, f"batch.micro_size={micro}", "batch.global_size=null").batch.resolve(3),
    )
    sums: list[torch.Tensor] = []
    for number in range(3):
        rank: Any = SumLater(number, 3, 1, number, torch.device("cpu"), sums)
        engine: Any = Engine(run.model())
        loop._held_out(run, engine, run.loss, data.validation, data.collate, batch, rank)
    total, targets = torch.stack(sums).sum(0).tolist()
    flat = [number for row in rows for number in row]
    assert (total, targets) == (sum(number**2 for number in flat), len(flat))


@dataclass(frozen=True)
class SumLater(Rank):
    """A rank that keeps what it would add to what the others have."""

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        self.control.append(tensor)
        return torch.ones(2)


class Engine:
    """As much of an engine as an evaluation needs."""

    def __init__(self, model: Any) -> None:
        self.module = model

    def train(self, mode: bool) -> None:
        self.module.train(mode)

    def precision(self) -> Any:
        return torch.no_grad()


class Unknown(Exception):
    """A bug in a learner's loss."""


def test_an_error_in_the_loss_comes_back_as_it_is(tmp_path: Path) -> None:
    error = Unknown("shapes do not fit")

    def fail(number: int) -> None:
        if number == 6:
            raise error

    with pytest.raises(Unknown) as caught, unchanged_process():
        train(Numbers(toy_run.settings(tmp_path), before_loss=fail), on_message=ignore)
    assert caught.value is error
    assert [frame.name for frame in traceback.extract_tb(caught.tb)][-3:] == ["train", "loss", "fail"]
    # It is free for the next attempt.
    assert train(Numbers(toy_run.settings(tmp_path)), on_message=ignore).steps == 6


def test_a_breakpoint_in_the_loss_stops_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[tuple[int, threading.Thread, str, Any]] = []

    def hook() -> None:
        # that of `stop` is the first one
        frame = sys._getframe(2)
        stopped.append((os.getpid(), threading.current_thread(), frame.f_code.co_name, frame.f_locals["batch"]))

    def stop(number: int) -> None:
        if number == 2:
            breakpoint()

    monkeypatch.setattr(sys, "breakpointhook", hook)
    train(Numbers(toy_run.settings(tmp_path), before_loss=stop), on_message=ignore)
    ((process, thread, function, batch),) = stopped
    assert (process, thread, function) == (os.getpid(), threading.main_thread(), "loss")
    assert batch["numbers"].tolist() == [4]


@pytest.mark.parametrize("logging", [1, 100])
def test_a_loss_that_is_not_a_number_ends_the_run_in_one_line(tmp_path: Path, logging: int) -> None:
    """Also if no line of the log is due: what is saved has been looked at."""
    samples = [[1.0]] * 16 + [[float("nan")]] + [[1.0]] * 40
    run = Numbers(toy_run.settings(tmp_path, f"engine.logging_freq={logging}"), samples=samples)
    with pytest.raises(CourseError) as caught:
        train(run, on_message=ignore)
    step = 5 if logging == 1 else 6
    assert str(caught.value).startswith(
        f"the loss is nan at step {step}; the last complete checkpoint is checkpoint-3: lower "
    )
    assert "\n" not in str(caught.value)
    assert [checkpoint.step_of(each) for each in checkpoint.whole_checkpoints(tmp_path)] == [3]


def test_too_little_memory_ends_the_run_in_one_line_of_advice(source: Path, tmp_path: Path) -> None:
    class Large(Gpt2):
        def loss(self, model: Any, batch: Any) -> Any:
            if [*(tmp_path / "checkpoints").glob("*/complete.json")]:
                torch.empty(1 << 50)  # a petabyte
            return super().loss(model, batch)

    run = gpt2(source, tmp_path)
    with pytest.raises(CourseError) as caught:
        train(Large(run.settings), on_message=ignore)
    said = str(caught.value)
    assert said.startswith(f"out of memory on rank 0 at step {HALF}: the planner expects") and "\n" not in said
    assert "to save memory: " in said and said.endswith(f"--resume continues from checkpoint-{HALF}")
    # It does.
    assert train(run, resume=True, on_message=ignore).steps == STEPS


def test_a_kind_without_a_plan_says_what_pytorch_says(tmp_path: Path) -> None:
    def fill(_: int) -> None:
        torch.empty(1 << 50)

    run = Numbers(toy_run.settings(tmp_path), before_loss=fill)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        train(run, on_message=ignore)


@contextmanager
def small_disk() -> Iterator[None]:
    """A disk on which files have no more than 4 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_names_its_file_and_the_run_goes_on_later(tmp_path: Path) -> None:
    run = Numbers(toy_run.settings(tmp_path))
    with pytest.raises(OSError) as caught, small_disk():
        train(run, on_message=ignore)
    assert caught.value.filename == str(tmp_path / "checkpoints/checkpoint-3/state-00000.safetensors")
    assert not checkpoint.whole_checkpoints(tmp_path)
    assert train(run, resume=True, on_message=ignore).steps == 6


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    refused: list[str] = []

    def second(number: int) -> None:
        if number == 5:
            with pytest.raises(CourseError) as caught:
                train(Numbers(toy_run.settings(tmp_path)), resume=True, on_message=ignore)
            refused.append(str(caught.value))

    trained = train(Numbers(toy_run.settings(tmp_path), before_loss=second), on_message=ignore)
    assert refused == [f"{tmp_path}: another process is training here; choose another engine.output_dir"]
    alone = train(Numbers(toy_run.settings(tmp_path / "alone")), on_message=ignore)
    assert losses(trained) == losses(alone)


def test_a_kind_without_a_command_is_refused_on_two_ranks(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="^launch.ranks: 2 is not allowed: no command trains numbers; allowed: 1$"):
        train(Numbers(toy_run.settings(tmp_path, "launch.ranks=2")), on_message=ignore)
    assert not [*tmp_path.iterdir()]


def test_a_finished_run_is_only_read(tmp_path: Path) -> None:
    trained = train(Numbers(toy_run.settings(tmp_path)), on_message=ignore)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")}
    run = Numbers(toy_run.settings(tmp_path))
    assert train(run, resume=True, on_message=ignore) == trained and not run.micro_batches
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")} == files
