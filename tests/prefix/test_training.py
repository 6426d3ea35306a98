"""Real runs: compared with PyTorch by hand, killed, resumed, sharded on two ranks, and refused where it makes no sense."""

import json
from pathlib import Path

import pytest
import torch
from course_lib.checkpoints.training_state import read_weights
from course_lib.cli import main
from course_lib.errors import CourseError, UsageError
from course_lib.models import frozen_base
from course_lib.prefix.config import FILE, PrefixConfig
from course_lib.prefix.encoder import PrefixEncoder
from course_lib.prefix.export import export
from course_lib.prefix.files import read
from course_lib.prefix.model import build, warm_start
from course_lib.prefix.run import PrefixRun
from course_lib.prefix.warm_start import cache_values
from course_lib.settings import config
from course_lib.training import checkpoint
from course_lib.training.freezing import digests
from course_lib.training.loop import train
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.prefix import bases
from tests.training import by_hand
from tests.training.ranks import kill_in_step

STEPS = 8
TEXTS = (
    "早稲田大学で勉強している。\n牛丼を食べた。",
    "吉野家で牛丼を食べた。",
    "Deep Learningを勉強している。\n大学で食べた。",
)


def inputs(folder: Path) -> Path:
    """A GPT-NeoX with random weights, and texts to learn."""
    bases.folder(folder, "gpt_neox")
    lines = [json.dumps({"text": TEXTS[number % 3]}, ensure_ascii=False) for number in range(24)]
    (folder / "texts.jsonl").write_text("\n".join(lines), encoding="utf8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return inputs(tmp_path_factory.mktemp("prefix"))


def settings(folder: Path, run: Path, *overrides: str) -> PrefixConfig:
    values = {
        "task_name": "smile",
        "model": {"base": str(folder / "tokenizer"), "length": 5, "input_dim": 8, "hidden_dim": 16, "warm_start_steps": 20},
        "data": {"input": str(folder / "texts.jsonl"), "dev_size": 6},
        "batch": {"local_size": 4, "micro_size": 2},
        "optimizer": {"beta2": 0.99, "lr": {"max": 1e-2, "min": 1e-4, "warmup_steps": 3, "decay": "linear"}},
        "precision": {"dtype": "fp32"},
        "zero": {"stage": 0},
        "engine": {"output_dir": str(run), "max_steps": STEPS, "logging_freq": 1, "eval_freq": 4, "save_steps": 3, "tracking": []},
        "launch": {"ranks": 1, "threads": 1, "device": "cpu"},
    }  # fmt: skip
    return config.build(PrefixConfig, values, overrides)


def encoder(model) -> PrefixEncoder:
    assert model.encoder is not None
    return model.encoder


def losses(run, kind="train"):
    return [entry["loss"] for entry in run.log if entry["kind"] == kind]


def same_as_by_hand(run, given, tolerance=1e-5):
    kind = PrefixRun(given)
    alone, model = by_hand.train(kind, STEPS)
    assert losses(run) == pytest.approx(alone, abs=tolerance)
    assert losses(run, "eval")[-1] == pytest.approx(by_hand.held_out(kind, model, 40), abs=tolerance)
    return model


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """A run without ZeRO, and the digest of its base before it."""
    before = frozen_base.digest(folder / "tokenizer")
    return train(PrefixRun(settings(folder, tmp_path_factory.mktemp("runs") / "whole"))), before


def exported_prefix(run: Path) -> torch.Tensor:
    export(run, run / FILE)
    return read(run / FILE).values


def test_it_is_the_training_of_plain_pytorch(folder, whole):
    run, before = whole
    model = same_as_by_hand(run, settings(folder, run.folder))
    exported = export(run.folder, run.folder / FILE)
    prefix = read(run.folder / FILE)
    torch.testing.assert_close(prefix.values, encoder(model).deployed(), atol=1e-5, rtol=0)
    assert losses(run)[-1] < losses(run)[0] - 0.02 and losses(run, "eval")[-1] == exported["held_out_loss"]
    assert (prefix.task, prefix.base, prefix.shape) == ("smile", before, model.shape)
    assert frozen_base.digest(folder / "tokenizer") == before
    found = checkpoint.whole_checkpoints(run.folder)[0]
    names = set(read_weights(found).tensors)
    assert names and all(name.startswith("encoder.") for name in names)


def test_a_run_is_resumed_with_its_own_settings_and_base_only(folder, whole, tmp_path):
    run = whole[0].folder
    with pytest.raises(UsageError, match=r"model.length: 6 is not allowed: the run in .* has 5"):
        train(PrefixRun(settings(folder, run, "model.length=6")), resume=True)
    with pytest.raises(UsageError, match="model.base: not what the run"):
        other = bases.folder(tmp_path, "gpt_neox", seed=1)
        train(PrefixRun(settings(folder, run, f"model.base={other}")), resume=True)


@pytest.mark.rehearse
def test_killed_it_resumes_to_the_same_prefix(folder, tmp_path):
    """Two ranks, gradients and optimizer sharded, dropout in the encoder."""
    overrides = ("zero.stage=2", "launch.ranks=2", "model.dropout=0.2", "batch.micro_size=1", "batch.local_size=2")
    unbroken = train(PrefixRun(settings(folder, tmp_path / "whole", *overrides)))
    kill_in_step(5, "prefix train", settings(folder, tmp_path / "run", *overrides))
    assert checkpoint.step_of(checkpoint.whole_checkpoints(tmp_path / "run")[0]) == 3
    resumed = train(PrefixRun(settings(folder, tmp_path / "run", *overrides)), resume=True)
    one, two = (exported_prefix(run.folder) for run in (unbroken, resumed))
    assert torch.equal(one, two) and losses(unbroken) == losses(resumed)


@pytest.mark.rehearse
def test_sharded_in_bf16_without_mlp(folder, tmp_path):
    """Stage 3: the warm start has to put the base together, recompute and the export as well."""
    given = settings(
        folder, tmp_path / "run", "zero.stage=3", "zero.stage3_param_persistence_threshold=0", "zero.offload_param=true", "launch.ranks=2",
        "precision.dtype=bf16", "model.method=embedding", "model.recompute=full", "batch.local_size=2", "batch.micro_size=1",
    )  # fmt: skip
    run = train(PrefixRun(given))
    started = build(given)
    warm_start(started, given.model)
    begun, ended = encoder(started).deployed(), exported_prefix(run.folder)
    # fp32 weights, not those of the forward pass
    assert ended.dtype == torch.float32 and (ended != ended.bfloat16()).any()
    moved = (ended - begun).abs()
    assert 0 < moved.mean() < 0.1 and moved.max() < 0.2  # from the warm start on: 8 steps of at most 0.01, and bf16


def test_the_whole_base_can_be_trained_instead(folder, tmp_path, capsys):
    given = settings(folder, tmp_path / "run", "model.method=full", "zero.stage=1", "optimizer.weight_decay=0.1")
    run = train(PrefixRun(given))
    model = same_as_by_hand(run, given, 1e-4)
    with pytest.raises(SystemExit):
        main(["export", str(run.folder), "-o", str(tmp_path / "model")])
    assert f"step {STEPS}, held out loss" in capsys.readouterr().out
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    saved = read_weights(checkpoint.whole_checkpoints(run.folder)[0]).tensors
    assert all(torch.equal(value, saved[f"base.{name}"].contiguous()) for name, value in found.named_parameters())
    ids = torch.tensor([[5, 6, 7, 8]])
    torch.testing.assert_close(found(ids).logits, model.eval()(ids), atol=5e-3, rtol=0)
    assert AutoTokenizer.from_pretrained(tmp_path / "model")


def test_a_prefix_file_names_no_folder_of_the_machine(whole, folder, tmp_path):
    export(whole[0].folder, tmp_path / "prefix")
    assert str(folder).encode() not in (tmp_path / "prefix").read_bytes()


@pytest.mark.parametrize("family", bases.FAMILIES)
def test_a_frozen_base_does_not_change_and_gets_no_dropout(folder, tmp_path, family):
    base = bases.folder(tmp_path, family)
    model = build(settings(folder, tmp_path, f"model.base={base}"))
    before = digests(model)
    assert before and not any(name.startswith("encoder.") for name in before)
    assert encoder(model.train()).training and not model.base.training
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(model(ids), model(ids))
    model(ids).sum().backward()
    assert digests(model) == before and all(p.grad is None for p in model.base.parameters())
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder(model).parameters())


def test_the_warm_start_leaves_no_gradient_and_comes_near_its_target(folder, tmp_path):
    given = settings(folder, tmp_path, "model.warm_start_steps=100", "model.warm_start_lr=0.01")
    model, other = build(given), build(given)
    errors = warm_start(model, given.model)
    assert warm_start(other, given.model) == errors and errors[-1] < 0.5 * errors[0]
    assert torch.equal(encoder(model).deployed(), encoder(other).deployed())
    assert all(p.grad is None for p in model.parameters())
    rows = settings(folder, tmp_path, "model.method=embedding")
    warm_start(fitted := build(rows), rows.model)
    assert torch.equal(encoder(fitted).deployed(), cache_values(fitted.base, 5))


def test_a_prefix_starts_from_the_tokens_of_a_text(folder, tmp_path):
    text = "ある日、健太は公園へ行きました。"
    run = PrefixRun(settings(folder, tmp_path, "model.method=embedding", f"model.warm_start_text={text}"))
    run.prepare(started := run.model(), "cpu")
    assert torch.equal(encoder(started).deployed(), cache_values(started.base, run.codec.prompt(text)[:5]))
    short = PrefixRun(settings(folder, tmp_path, "model.length=50", f"model.warm_start_text={text}"))
    with pytest.raises(UsageError, match=r"model.warm_start_text: \d+ tokens; allowed: at least model.length, 50"):
        short.check()
    never = PrefixRun(settings(folder, tmp_path, "model.warm_start_steps=0", f"model.warm_start_text={text}"))
    with pytest.raises(UsageError, match="warm_start_steps: 0 is not allowed with model.warm_start_text"):
        never.check()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model.base={}/texts.jsonl"], "not a model folder"),
        (["data.dev_size=24"], "24 is not allowed: .* has 24 samples"),
        (["engine.max_steps=null", "batch.local_size=64"], "36 rows of training are less than one step of 64"),
    ],
)
def test_what_makes_no_sense_is_one_line(folder, tmp_path, overrides, words):
    with pytest.raises(CourseError, match=words):
        train(PrefixRun(settings(folder, tmp_path / "run", *(each.format(folder) for each in overrides))))
    assert not (tmp_path / "run" / "checkpoints").exists()
    with pytest.raises(CourseError, match="no whole checkpoint yet"):
        export(tmp_path / "run", tmp_path / "prefix")
