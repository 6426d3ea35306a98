"""Muon against the loop that it was tried in (prototype.py), and against a singular-value decomposition."""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from course_lib.models.causal import build_model
from course_lib.models.config import ModelConfig
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.pretrain.indexed import IndexedWriter, dtype_for
from course_lib.settings.config import build
from course_lib.subword.folder import Preparation, save
from course_lib.training import checkpoint, muon
from course_lib.training.loop import Trained, train
from course_lib.training.lr_schedule import learning_rate
from course_lib.training.settings import BatchConfig, EngineConfig, LaunchConfig, MuonConfig
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.nn import functional

from tests.training import prototype

STEPS, WIDTH, HEADS, VOCABULARY, LENGTH, BATCH = 20, 48, 3, 97, 32, 8
LR, MUON_LR, MUON_DECAY, CLIP = 3e-3, 0.02, 0.1, 1.0


@pytest.fixture
def settings() -> PretrainConfig:
    values = {
        "model": {
            "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_layers": 3, "num_attention_heads": HEADS,
            "max_position_embeddings": LENGTH, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        },
        "data": {"seq_length": LENGTH},
        "optimizer": {
            "name": "muon", "weight_decay": 0.0, "beta2": 0.95, "grad_clip": CLIP,
            "lr": {"max": LR, "min": 0.0, "warmup_rate": 0.1, "decay": "trapezoid", "decay_rate": 0.75},
            "muon": {"lr": MUON_LR, "momentum": 0.95, "weight_decay": MUON_DECAY},
        },
        "precision": {"dtype": "fp32"},
    }  # fmt: skip
    return build(PretrainConfig, values)


def samples() -> list[torch.Tensor]:
    """Batches [BATCH, LENGTH + 1] of a sequence that can be learned."""
    random = torch.Generator().manual_seed(1)
    start = torch.randint(0, VOCABULARY, (STEPS, BATCH, 1), generator=random)
    noise = torch.randint(0, 3, (STEPS, BATCH, LENGTH + 1), generator=random)
    return list((start + 7 * torch.arange(LENGTH + 1) + noise) % VOCABULARY)


def losses_of_muon(settings: PretrainConfig, model: Any, batches: list[torch.Tensor]) -> list[float]:
    wanted = settings.optimizer
    optimizer = muon.muon(model, wanted, torch.float32)
    losses = []
    for step, batch in enumerate(batches, 1):
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), wanted.grad_clip)
        for group in optimizer.param_groups:
            group["lr"] = group["relative_lr"] * learning_rate(wanted.lr, step, STEPS)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def test_the_optimizer_makes_the_losses_of_the_prototype(settings):
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(build_model(settings.model))
    batches = samples()
    expected = [loss.item() for loss in prototype.train(models[0], batches, STEPS, settings)]
    found = losses_of_muon(settings, models[1], batches)
    assert found[0] == pytest.approx(expected[0], abs=1e-6)
    assert found == pytest.approx(expected, rel=1e-4)
    assert found[-1] < 0.9 * found[0]


def test_the_loop_makes_the_losses_of_the_prototype(tmp_path, settings):
    """From the same weights and samples, read from files: `train` against the prototype."""
    run = run_in(tmp_path, settings, max_steps=STEPS)
    settings = run.settings
    torch.manual_seed(settings.engine.seed)
    model = run.model()
    read = run.data(STEPS * BATCH).train
    rows = [torch.from_numpy(read[at]) for at in range(STEPS * BATCH)]
    batches = [torch.stack(rows[at : at + BATCH]) for at in range(0, STEPS * BATCH, BATCH)]
    expected = [loss.item() for loss in prototype.train(model, batches, STEPS, settings)]

    found = losses(train(run, on_message=lambda _: None))
    assert found[0] == pytest.approx(expected[0], abs=1e-6)
    assert found == pytest.approx(expected, rel=1e-4)
    assert found[-1] < 0.95 * found[0]


def test_a_resumed_run_goes_on_with_its_momentum(tmp_path, settings):
    run = run_in(tmp_path, settings, max_steps=STEPS, save_steps=STEPS // 2)
    unbroken = losses(train(run, on_message=lambda _: None))
    shutil.rmtree(checkpoint.at(run.settings.engine.output_dir, STEPS))
    assert losses(train(run, resume=True, on_message=lambda _: None)) == unbroken


def test_a_run_of_a_given_time_keeps_its_time_over_a_kill(tmp_path, settings):
    """Its rate falls with the time, so it goes on where it was; after an epoch of 20 documents comes another."""
    rate = replace(settings.optimizer.lr, decay="linear", warmup_rate=0.0)
    settings = replace(settings, optimizer=replace(settings.optimizer, lr=rate))
    run = run_in(tmp_path, settings, documents=20, max_seconds=2.0, save_steps=10, keep_checkpoints=None)
    first = train(run, on_message=lambda _: None)
    assert first
    rates = {entry["step"]: entry["learning_rate"] for entry in first.log if entry["kind"] == "train"}
    assert list(rates.values()) == sorted(rates.values(), reverse=True) and rates[first.steps] == 0
    assert first.log[-1]["epoch"] > 1
    begun = 10 * (first.steps // 20)
    for saved in checkpoint.newer_than(first.folder, begun):
        shutil.rmtree(saved)
    second = train(run, resume=True, on_message=lambda _: None)
    assert second
    again = {entry["step"]: entry["learning_rate"] for entry in second.log if entry["kind"] == "train"}
    assert again[begun] == rates[begun] > again[begun + 1] > 0.5 * rates[begun] and again[second.steps] == 0


def test_the_clock_starts_when_the_compiler_is_done(tmp_path, monkeypatch, settings):
    def compiled(loss, **_):
        calls: list[Any] = []

        def slow_at_first(*arguments):
            if not calls:
                time.sleep(1.5)
            calls.append(1)
            return loss(*arguments)

        return slow_at_first

    monkeypatch.setattr(torch, "compile", compiled)
    trained = train(run_in(tmp_path, settings, max_seconds=1.0, compile=True), on_message=lambda _: None)
    assert trained and trained.steps > 5


def run_in(folder: Path, settings: PretrainConfig, documents: int = 120, **engine: Any) -> Gpt2:
    """A run on one rank in a folder, whose tokens and tokenizer it makes."""
    token_files(folder, documents)
    return Gpt2(
        replace(
            settings,
            data=replace(settings.data, input=(folder / "tokens",), tokenizer=folder / "tokenizer", split="1,0,0"),
            batch=BatchConfig(local_size=BATCH, micro_size=BATCH),
            engine=EngineConfig(output_dir=folder / "run", logging_freq=1, tracking=(), eval_freq=0, **engine),
            launch=LaunchConfig(ranks=1, device="cpu"),
        )
    )


def losses(trained: Trained | None) -> list[float]:
    assert trained
    return [entry["loss"] for entry in trained.log if entry["kind"] == "train"]


def token_files(folder: Path, documents: int) -> None:
    """Tokens that can be learned in part, and a tokenizer folder of the same size."""
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, VOCABULARY)}
    (folder / "tokenizer").mkdir()
    save(Tokenizer(WordLevel(words, "<unk>")), Preparation(False, False), folder / "tokenizer")
    random = np.random.default_rng(0)
    number = 100 * documents
    ids = (3 + (np.arange(number) * 7 + random.integers(0, 3, number)) % (VOCABULARY - 3)).astype("<u2")
    with IndexedWriter(folder / "tokens", dtype_for(VOCABULARY)) as writer:
        writer.append(ids, np.full(documents, 100))


@pytest.mark.parametrize("shape", [(1, 12, 40), (3, 40, 12), (2, 20, 20)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.1)])
def test_singular_values_come_near_1_and_vectors_stay(shape, dtype, tolerance):
    matrices = torch.randn(shape)
    made = muon.orthogonalized(matrices, dtype)
    u, s, v = torch.linalg.svd(matrices, full_matrices=False)
    left, right = u.mT @ made, v
    diagonal = left @ right.mT
    values = diagonal.diagonal(dim1=1, dim2=2)
    assert (diagonal - torch.diag_embed(values)).abs().max() < tolerance
    # The smallest of the square matrices are not brought all the way up in five steps.
    assert values.max() < 1.25 and values[s > 0.1 * s[:, :1]].min() > 0.65
    assert made.dtype == torch.float32


def test_each_weight_has_the_state_of_its_algorithm(settings):
    model = build_model(settings.model)
    optimizer = muon.muon(model, settings.optimizer, torch.bfloat16)
    batch = samples()[0]
    model(input_ids=batch[:, :-1], labels=batch[:, :-1]).loss.backward()
    optimizer.step()
    names = {parameter: name for name, parameter in model.named_parameters()}
    states = {names[parameter]: set(state) for parameter, state in optimizer.state.items()}
    assert states.keys() == set(names.values())
    for name, state in states.items():
        is_matrix = ".h." in name and name.endswith("weight") and ".ln_" not in name
        assert state == ({"momentum"} if is_matrix else {"exp_avg", "exp_avg_sq", "step"})


def test_matrices_that_are_too_large_are_orthogonalized_one_after_the_other(settings, monkeypatch):
    """The same losses, to the rounding of the batched products."""
    torch.manual_seed(0)
    first = build_model(settings.model)
    torch.manual_seed(0)
    second = build_model(settings.model)
    batches = samples()[:5]
    together = losses_of_muon(settings, first, batches)
    monkeypatch.setattr(MuonConfig, "elements_together", WIDTH * WIDTH * 5)
    assert losses_of_muon(settings, second, batches) == pytest.approx(together, rel=1e-5)
    groups = muon.muon_groups(second, settings.optimizer)
    assert [len(group["params"]) for group in groups if group["use_muon"]] == [1, 1, 1, 3, 1, 1, 1, 1, 1, 1]


def test_a_feed_forward_layer_of_the_width_of_query_key_and_value_is_not_cut():
    model = build_model(
        ModelConfig(vocab_size=50, hidden_size=12, num_layers=2, num_attention_heads=2, ffn_hidden_size=36)
    )
    groups = muon.muon_groups(model, PretrainConfig().optimizer)
    assert [(len(group["params"]), group["parts"]) for group in groups if group["use_muon"]] == [
        (2, 3), (2, 1), (2, 1), (2, 1),
    ]  # fmt: skip
