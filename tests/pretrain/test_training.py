"""Real runs on two CPU ranks: compared, killed, resumed and broken; on one rank what needs no more."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from course_lib.checkpoints.training_state import read_weights
from course_lib.errors import CourseError, UsageError
from course_lib.models.causal import build_model
from course_lib.pretrain import data
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.export import export
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.pretrain.indexed import IndexedWriter, dtype_for
from course_lib.settings import config
from course_lib.subword.folder import Preparation, save
from course_lib.training import checkpoint, log
from course_lib.training.loop import train
from course_lib.training.lr_schedule import learning_rate
from course_lib.training.parameter_groups import decays
from transformers import AutoModelForCausalLM

from tests.training.ranks import kill_in_step
from tests.waiting import LIMIT, until

VOCABULARY, LENGTH, STEPS = 300, 32, 20
# The id of </s>.
END = 2


def inputs(folder: Path) -> Path:
    """Tokens with a pattern to learn, and a tokenizer folder of the same size."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, VOCABULARY)}
    (folder / "tokenizer").mkdir()
    save(Tokenizer(WordLevel(words, "<unk>")), Preparation(False, False), folder / "tokenizer")
    random = np.random.default_rng(0)
    ids = (3 + (np.arange(30_000) * 7 + random.integers(0, 3, 30_000)) % (VOCABULARY - 3)).astype("<u2")
    with IndexedWriter(folder / "tokens", dtype_for(VOCABULARY)) as writer:
        writer.append(ids, np.full(300, 100))
    return folder


def uneven_inputs(folder: Path) -> Path:
    """Token files of documents with 2 to 90 tokens, so that some are longer than a sample, and their tokenizer."""
    inputs(folder)
    rng = np.random.default_rng(1)
    with IndexedWriter(folder / "uneven", dtype_for(VOCABULARY)) as writer:
        for size in rng.integers(2, 90, 60).tolist():
            ids = np.append(rng.integers(3, 40, size - 1), END)
            writer.append(ids.astype("<u2"), np.array([size]))
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return inputs(tmp_path_factory.mktemp("data"))


def settings(source: Path, run: Path, *overrides: str) -> PretrainConfig:
    values = {
        "model": {"vocab_size": VOCABULARY, "hidden_size": 32, "num_layers": 2, "num_attention_heads": 2,
                  "max_position_embeddings": LENGTH, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        "data": {"input": [str(source / "tokens")], "tokenizer": str(source / "tokenizer"), "seq_length": LENGTH, "split": "8,1,1"},
        "batch": {"global_size": 8, "micro_size": 2},
        "optimizer": {"lr": {"max": 1e-2, "min": 1e-3, "warmup_steps": 3}, "weight_decay": 0.1},
        "precision": {"dtype": "fp32"},
        "engine": {"output_dir": str(run), "max_steps": STEPS, "logging_freq": 1, "eval_freq": 10, "eval_iters": 2, "save_steps": 5,
                   "tracking": ["tensorboard"]},
        "launch": {"ranks": 2, "threads": 1, "device": "cpu"},
    }  # fmt: skip
    return config.build(PretrainConfig, values, overrides)


def train_losses(run) -> list[float]:
    return [entry["loss"] for entry in run.log if entry["kind"] == "train"]


def weights(run: Path) -> dict[str, torch.Tensor]:
    tensors = read_weights(checkpoint.whole_checkpoints(run)[0]).tensors
    return {name: each.contiguous() for name, each in tensors.items()}


@pytest.fixture(scope="module")
def unbroken(source, tmp_path_factory):
    """A run with dropout, as one piece."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(run.parent / "compiled"))
        return train(Gpt2(settings(source, run, "model.hidden_dropout_prob=0.1")))


def test_cpu_ranks_compile_nothing(unbroken):
    assert not [*(unbroken.folder.parent / "compiled").rglob("*.so")]


def test_a_run_leaves_what_it_promises(unbroken):
    names = {path.name for path in unbroken.folder.iterdir()}
    assert names >= {"config.yaml", "data.json", "tokenizer", "log.jsonl", "output.txt", "checkpoints"}
    entries = log.read(unbroken.folder)
    assert any((unbroken.folder / "tensorboard").glob("events.out.tfevents.*"))
    train = [entry for entry in entries if entry["kind"] == "train"]
    assert [entry["step"] for entry in train] == list(range(1, STEPS + 1))
    assert [entry["step"] for entry in entries if entry["kind"] == "eval"] == [10, 20]
    assert [entry["step"] for entry in entries if entry["kind"] == "test"] == [20]
    assert train[-1]["loss"] < train[0]["loss"] - 0.5
    assert all(0 < entry["reader_cost"] < entry["batch_cost"] for entry in train)
    rate = settings(unbroken.folder, unbroken.folder).optimizer.lr
    assert train[5]["learning_rate"] == pytest.approx(learning_rate(rate, 6, STEPS))
    steps = [checkpoint.step_of(path) for path in checkpoint.whole_checkpoints(unbroken.folder)]
    assert steps == [20, 15]


@pytest.mark.rehearse  # section 4b.6 kills a run and compares the losses after its resume
def test_killed_it_resumes_to_the_same_weights(source, tmp_path, unbroken):
    run = tmp_path / "run"
    killed = settings(source, run, "model.hidden_dropout_prob=0.1")
    kill_in_step(8, "pretrain", killed)
    half = run / "checkpoints" / "checkpoint-999"  # as a kill in the middle of saving leaves it
    half.mkdir()
    checkpoint.record(run, 999)
    (half / "trainer_state.json").write_text("{")
    assert checkpoint.step_of(checkpoint.whole_checkpoints(run)[0]) == 5
    with pytest.raises(UsageError, match="--resume continues it"):
        train(Gpt2(killed))
    resumed = train(Gpt2(killed), resume=True)
    assert (run / log.FILE).read_bytes().count(b"\n") == len(resumed.log)  # no step twice
    assert not half.exists()
    assert log.read(run)[-1]["step"] == STEPS
    before, after = weights(unbroken.folder), weights(resumed.folder)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert train_losses(unbroken) == train_losses(resumed)


# It starts processes for two nodes, as `srun` does.
SRUN = f'#!/bin/sh\nexec {sys.executable} -m tests.training.fake_srun "$@"\n'


@pytest.mark.rehearse
def test_two_nodes_train_as_one(source, tmp_path, unbroken, monkeypatch):
    """In a job of two nodes, as far as the run sees Slurm; a real one: `python -m tests.bench.several_nodes slurm`."""
    answers = {"scontrol": "printf 'nodeA\\nnodeB\\n'", "sinfo": "echo 127.0.0.1"}
    for name, script in {"srun": SRUN, **{name: f"#!/bin/sh\n{answer}\n" for name, answer in answers.items()}}.items():
        (tmp_path / name).write_text(script, encoding="utf8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[A-B]")
    run = train(Gpt2(settings(source, tmp_path / "two", "model.hidden_dropout_prob=0.1", "launch.ranks=1")))
    assert [each["loss"] for each in run.log] == [each["loss"] for each in unbroken.log]
    before, after = weights(unbroken.folder), weights(run.folder)
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.rehearse  # chapter 4b compares its own ZeRO-2 with DeepSpeed
def test_zero2_on_two_ranks_trains_as_plain_adamw_in_one_process(source, tmp_path):
    run = train(Gpt2(settings(source, tmp_path / "run")))
    chosen = config.load(PretrainConfig, run.folder / "config.yaml")
    torch.manual_seed(chosen.engine.seed)
    model = build_model(chosen.model)
    named = list(model.named_parameters())
    groups = [{"params": [p for n, p in named if decays(n)], "weight_decay": 0.1},
              {"params": [p for n, p in named if not decays(n)], "weight_decay": 0.0}]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, 1e-2, (0.9, 0.999), 1e-8)
    samples = data.dataset(chosen, data.open_splits(chosen.data, VOCABULARY).train, STEPS * 8)
    assert samples
    losses = []
    for step in range(1, STEPS + 1):
        tokens = torch.from_numpy(np.stack([samples[i] for i in range((step - 1) * 8, step * 8)]))
        logits = model(tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(chosen.optimizer.lr, step, STEPS)
        optimizer.step()
        losses.append(loss.item())
    assert train_losses(run) == pytest.approx(losses, rel=2e-5)


@pytest.mark.rehearse
def test_a_rank_that_dies_is_named_and_the_others_stop(source, tmp_path):
    chosen = settings(source, tmp_path / "run", "engine.max_steps=100000")
    (tmp_path / "config.yaml").write_text(config.to_yaml(chosen))
    command = [sys.executable, "-m", "course_lib.cli", "pretrain", "-c", str(tmp_path / "config.yaml")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    run = tmp_path / "run"
    until(lambda: (run / "log.jsonl").exists() and log.read(run)[-1]["step"] >= 7, process)
    ranks = {child.environ().get("RANK"): child for child in psutil.Process(process.pid).children()}
    try:
        ranks["1"].kill()
        message = process.communicate(timeout=LIMIT)[1].decode()
    finally:
        process.kill()
    assert process.returncode == 1
    assert message.count("\n") == 1
    assert "rank 1 ended without an error message" in message and "--resume continues from checkpoint-" in message
    assert not ranks["0"].is_running()


def test_a_loss_that_is_not_finite_ends_the_run_in_one_line(source, tmp_path):
    # nothing but </s>, whose loss is masked: 0 / 0
    with IndexedWriter(tmp_path / "ends", dtype_for(VOCABULARY)) as writer:
        writer.append(np.full(1000, 2, "<u2"), np.full(100, 10))
    overrides = (f"data.input=[{tmp_path}/ends]", "data.mask_loss_at_eod=true", "launch.ranks=1")
    with pytest.raises(CourseError, match="nan at step 1"):
        train(Gpt2(settings(source, tmp_path / "run", *overrides)))
    assert not checkpoint.whole_checkpoints(tmp_path / "run")


def test_what_does_not_go_together_is_refused_before_anything_starts(source, tmp_path):
    for overrides, words in {
        ("batch.global_size=7",): "batch.global_size",
        ("model.vocab_size=299",): "model.vocab_size: 299 is not allowed: the tokenizer",
        ("optimizer.lr.warmup_steps=21",): "warmup_steps",
        (f"data.input=[{source}/nothing]",): "nothing",
    }.items():
        with pytest.raises(CourseError, match=words):
            train(Gpt2(settings(source, tmp_path / "run", *overrides)))
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.parametrize("documents", [1, 30])
def test_a_run_without_evaluation_says_so(source, tmp_path, documents):
    with IndexedWriter(tmp_path / "tokens", dtype_for(VOCABULARY)) as writer:
        writer.append(np.full(900, 5, "<u2"), np.full(documents, 900 // documents))
    chosen = settings(source, tmp_path / "run", f"data.input=[{tmp_path}/tokens]", "data.split=97,2,1")
    assert "no evaluation" in Gpt2(chosen).summary()
    assert not Gpt2(replace(chosen, engine=replace(chosen.engine, eval_freq=0))).summary()
    assert not Gpt2(settings(source, tmp_path / "run")).summary()


def test_only_the_same_run_is_resumed(source, tmp_path, unbroken):
    """One rank tells, and returns a finished run of two as it is."""
    same = "model.hidden_dropout_prob=0.1", "launch.ranks=1"
    with IndexedWriter(tmp_path / "tokens", dtype_for(VOCABULARY)) as writer:
        writer.append(np.full(30_000, 5, "<u2"), np.full(300, 100))
    another = shutil.copytree(unbroken.folder / "tokenizer", tmp_path / "another")
    names = json.loads((another / "tokenizer_config.json").read_text())
    (another / "tokenizer_config.json").write_text(json.dumps(names | {"unk_token": "</s>"}))
    for overrides, words in {
        ("engine.seed=7",): "engine.seed: 7 is not allowed: the run in .* has 1024",
        ("optimizer.lr.max=2e-2",): r"^optimizer\.lr\.max: 0.02 is not allowed: the run in [^{]* has 0.01; [^{]*$",
        ("batch.global_size=16",): "batch.global_size: 16 is not allowed",
        (f"data.input=[{tmp_path}/tokens]",): "data.input: not what the run",
        (f"data.tokenizer={another}",): "^tokenizer: its tokenizer_config.json is not that of the run in ",
    }.items():
        changed = settings(source, unbroken.folder, *same, *overrides)
        with pytest.raises(UsageError, match=words):
            train(Gpt2(changed), resume=True)
    done = train(Gpt2(settings(source, unbroken.folder, *same)), resume=True)
    assert done.steps == STEPS and done.log == unbroken.log


@pytest.mark.rehearse
def test_a_gpt_neox_trains_resumes_and_exports(source, tmp_path):
    """In bf16, where rotary frequencies must not be rounded with the weights; the exported model is the one that was measured."""
    shape = ("model.architecture=gpt-neox", "model.rotary_pct=0.5", "model.hidden_dropout_prob=0.1")
    chosen = settings(source, tmp_path / "run", *shape, "precision.dtype=bf16", "engine.max_steps=10")
    run = train(Gpt2(chosen))
    losses, before = train_losses(run), weights(run.folder)
    assert losses[-1] < losses[0] - 0.2
    shutil.rmtree(run.folder / "checkpoints" / "checkpoint-10")
    again = train(Gpt2(chosen), resume=True)
    assert train_losses(again) == losses
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(run.folder).items())

    report = export(run.folder, run.folder / "model")
    model = AutoModelForCausalLM.from_pretrained(run.folder / "model", dtype="auto")
    assert (model.dtype, report["parameters"]) == (torch.bfloat16, chosen.sizes().parameters)
    loaded = model.state_dict()
    # DeepSpeed's fp32 copy, rounded, is what the ranks compute with
    assert all(torch.equal(before[name].bfloat16(), loaded[name.replace("embed_out", "lm_head")]) for name in before)
    test = data.dataset(chosen, data.open_splits(chosen.data, VOCABULARY).test)
    assert test
    tokens = torch.from_numpy(np.stack([test[i] for i in range(len(test))]))
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits.float()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    (measured,) = (entry["loss"] for entry in again.log if entry["kind"] == "test")
    assert loss.item() == pytest.approx(measured, abs=1e-5)
