"""The planner against measurements: tensors of real runs to the byte, allocations of PyTorch, and the tables of the literature."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.models.causal import build_model
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings.config import build, load
from course_lib.training import planner
from course_lib.training.engines import PlainEngine
from course_lib.training.memory import GB
from course_lib.training.ranks import Rank

from tests.allocations import allocated, norms_as_on_a_gpu
from tests.training import ranks

RECOMPUTE = planner.recompute_choices(PretrainConfig())
KINDS = ("gpt2", "gpt-neox")
SHAPES = {  # name: layers, width, heads, vocabulary, positions
    "345M": (24, 1024, 16, 50304, 1024),
    "1.3B": (24, 2048, 16, 50304, 1024),
    "XL": (48, 1600, 20, 50000, 1024),
    "124M": (12, 768, 12, 50304, 1024),
}


def run(name="XL", **sections):
    layers, width, heads, vocabulary, positions = SHAPES[name]
    model = {
        "num_layers": layers, "hidden_size": width, "num_attention_heads": heads, "vocab_size": vocabulary,
        "max_position_embeddings": positions,
    }  # fmt: skip
    return build(PretrainConfig, sections | {"model": model | sections.pop("model", {})})


@pytest.mark.parametrize("architecture", KINDS)
def test_tensors_are_those_of_the_model_in_its_order(architecture):
    settings = run("345M", model={"architecture": architecture, "num_layers": 3, "ffn_hidden_size": 1111})
    with torch.device("meta"):
        built = build_model(settings.model)
    assert list(settings.sizes().trained) == [(p.numel(), p.ndim > 1) for p in built.parameters()]
    found = {each.name: each.shape for each in settings.sizes().counted}
    assert found == {name: tuple(parameter.shape) for name, parameter in built.named_parameters()}


def test_flops_per_token():
    for architecture in KINDS:
        flops = [run(name, model={"architecture": architecture}).sizes().flops_per_token for name in ("345M", "XL")]
        assert flops == pytest.approx([2.43e9, 1.03e10], rel=0.02)


def test_a_layer_keeps_what_korthikanti_et_al_count():
    """34·s·b·h + 5·a·s²·b bytes, arXiv:2205.05198: 16 bits, dropout, attention weights saved."""
    settings = run("345M", model={"attention": "eager"}, precision={"dtype": "fp16"}, batch={"micro_size": 4})
    s, b, h, a = 1024, 4, 1024, 16
    assert settings.sizes().layers[0].saved() == 34 * s * b * h + 5 * a * s * s * b


@pytest.mark.parametrize(
    ("ranks", "by_stage"),
    [
        (1, (24.92, 24.92, 24.92, 24.92)),
        (8, (24.92, 8.56, 5.84, 3.11)),
        (16, (24.92, 7.40, 4.48, 1.56)),
    ],
)
def test_states_of_xl_are_those_of_the_zero_paper(ranks, by_stage):
    """Without DeepSpeed (stage 0, or one rank) they are as many bytes, otherwise divided: 4 + 4 + 8 a parameter."""
    for stage, expected in enumerate(by_stage):
        # Gradients stay from one micro-batch to the next.
        batch = {"micro_size": 1, "local_size": 2}
        parts = planner.plan(run(zero={"stage": stage}, batch=batch), ranks).parts
        found = (parts["weights"] + parts["gradients"] + parts["optimizer"]) / GB
        assert found == pytest.approx(expected, abs=0.01 + 0.05 * (stage == 2))  # DeepSpeed keeps cut gradients whole


@pytest.mark.parametrize(("name", "recompute", "measured"), [("345M", "none", 30.9), ("1.3B", "full", 26.0)])
def test_near_the_table_of_fleetx(name, recompute, measured):
    """V100, batch 8, model and loss in fp16 with an fp32 copy of the weights: 16 bytes a parameter, no autocast."""
    model = {"attention": "eager", "recompute": recompute}
    sizes = run(name, model=model, precision={"dtype": "fp16"}).sizes(autocast=False)
    assert (16 * sizes.parameters + sizes.activations + sizes.logits) / GB == pytest.approx(measured, rel=0.1)


# GPT-2 on an H200, version 1.0, bf16, dropout 0, micro-batches of 32 × 1024 tokens, sdpa, nothing recomputed or compiled;
# one rank, which then trained with DeepSpeed, too: stage 2. Allocated: PyTorch's peak; reserved: all that the card had given.
H200 = {"124M": (31_383_375_360, 35_812_671_488), "XL": (122_422_892_032, 131_463_774_208)}


@pytest.mark.parametrize("name", H200)
def test_near_what_an_h200_allocated_and_reserved(monkeypatch, name):
    monkeypatch.setattr(PretrainConfig, "uses_deepspeed", lambda *_: True)
    allocated, reserved = H200[name]
    model = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    settings = run(name, model=model, batch={"micro_size": 32})
    sizes = settings.sizes(autocast=False)
    assert 16 * sizes.parameters + sizes.activations + sizes.logits == pytest.approx(allocated, rel=0.03)
    assert planner.plan(settings, 1).total == pytest.approx(reserved, rel=0.03)


TINY = {  # odd: padding shows
    "vocab_size": 61, "max_position_embeddings": 17, "hidden_size": 18, "num_layers": 3, "num_attention_heads": 3, "ffn_hidden_size": 35,
}  # fmt: skip


@pytest.fixture(scope="module")
def measured():
    """Two ranks, every model, stage and format: for each rank, a list of (architecture, stage, dtype, bytes)."""
    said = ranks.launch(
        Path(__file__).with_name("measure_states.py"), json.dumps([TINY | {"architecture": each} for each in KINDS])
    )
    return [json.loads(line) for line in re.findall(r"^MEASURED (.*)$", said, re.MULTILINE)]


@pytest.mark.rehearse
def test_states_are_those_of_deepspeed_to_the_byte(measured):
    assert len(measured) == 2 and len(measured[0]) == 6 * len(KINDS)
    for first, second in zip(*measured):
        architecture, stage, dtype, _ = first
        zero = {"stage": stage, "stage3_param_persistence_threshold": 100}
        model = TINY | {"architecture": architecture}
        settings = build(
            PretrainConfig, {"model": model, "data": {"seq_length": 17}, "precision": {"dtype": dtype}, "zero": zero}
        )
        planned = planner.plan(settings, 2).parts
        for part in ("weights", "gradients", "optimizer"):
            assert planned[part] == max(first[-1][part], second[-1][part]), (architecture, stage, dtype, part)


MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt-neox": {"architecture": "gpt-neox"},
    "parallel": {"architecture": "gpt-neox", "use_parallel_residual": True, "rotary_pct": 0.5},
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("attention", [pytest.param("eager", marks=pytest.mark.rehearse), "sdpa"])
@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize("autocast", [False, pytest.param(True, marks=pytest.mark.rehearse)])
def test_activations_and_logits_are_what_pytorch_allocates(monkeypatch, kind, attention, recompute, autocast):
    """In bf16 as under DeepSpeed, and with fp32 weights under autocast as without it."""
    norms_as_on_a_gpu(monkeypatch)
    model = MODELS[kind] | {
        "vocab_size": 1500, "hidden_size": 64, "num_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 128, "attention": attention,
        "recompute": recompute, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip
    settings = build(
        PretrainConfig,
        {"model": model, "data": {"seq_length": 128}, "batch": {"micro_size": 4}, "precision": {"dtype": "bf16"}},
    )
    built = build_model(settings.model).to(torch.float32 if autocast else torch.bfloat16).train()
    for parameter in built.parameters():
        parameter.grad = torch.zeros_like(parameter)
    tokens = torch.randint(0, 1500, (4, 129))

    def forward():
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = built(input_ids=tokens[:, :-1], use_cache=False).logits.float()
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    sizes = settings.sizes(autocast)
    stored = sizes.activations + sizes.saved_casts
    saved, _, loss = allocated(forward)
    del loss
    assert saved == pytest.approx(stored + sizes.logits / 3, rel=0.085)  # the log-softmax stays
    _, peak, _ = allocated(lambda: forward().backward())
    assert peak == pytest.approx(stored + sizes.logits, rel=0.04)


# layers, width, vocabulary, length, micro-batch: most memory is for logits, activations, matrices, the embedding
WEIGHTS = {"logits": (3, 64, 1500, 128, 4), "matrices": (6, 128, 300, 16, 1), "embedding": (2, 64, 4000, 16, 1)}


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("accumulation", [pytest.param(1, marks=pytest.mark.rehearse), 2])
def test_a_step_without_deepspeed_is_what_pytorch_allocates(weight, optimizer, dtype, accumulation):
    """States to the byte, and the peak of a step: forward and backward passes, clipping, optimizer."""
    layers, width, vocabulary, length, micro = WEIGHTS[weight]
    model = {
        "num_layers": layers, "hidden_size": width, "num_attention_heads": 4, "vocab_size": vocabulary,
        "max_position_embeddings": length, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip
    batch = {"micro_size": micro, "local_size": micro * accumulation}
    settings = build(
        PretrainConfig,
        {"model": model, "data": {"seq_length": length}, "batch": batch, "precision": {"dtype": dtype}},
        [f"optimizer.name={optimizer}"],
    )
    gpt2 = Gpt2(settings)
    engine = PlainEngine(
        gpt2, build_model(settings.model), Rank(number=0, ranks=1, nodes=1, local=0, device=torch.device("cpu"))
    )
    engine.train(True)
    micro_batches = [{"tokens": torch.randint(0, vocabulary, (micro, length + 1))} for _ in range(accumulation)]

    def step():
        for micro_batch in micro_batches:
            with engine.precision():
                loss = gpt2.loss(engine.module, micro_batch)
            engine.backward(loss)
            del loss
        engine.step(1e-3)

    # AdamW creates its moments in the first step.
    step()
    weights = sum(parameter.nbytes for parameter in engine.model.parameters())
    moments = sum(
        value.nbytes for state in engine.optimizer.state.values() for key, value in state.items() if key != "step"
    )
    parts = planner.plan(settings, 1).parts
    assert (parts["weights"], parts["optimizer"]) == (weights, moments)
    _, peak, _ = allocated(step)
    planned = sum(parts.values()) - parts["allowance"]
    assert weights + moments + peak == pytest.approx(planned, rel=0.05)


def test_muon_is_not_advised_to_use_more_ranks_or_offload():
    settings = run("345M", optimizer={"name": "muon"}, precision={"dtype": "fp32"})
    advised = [change for change, _ in planner.smaller(settings, 1)]
    assert advised and not any("offload" in change or "GPUs" in change for change in advised)
    # Stages change nothing.
    assert [each.settings.zero.stage for each in planner.grid(settings, 1)] == [2] * len(RECOMPUTE)
    assert len(planner.grid(run("345M"), 2)) == 4 * len(RECOMPUTE)


def test_offload_moves_states_to_the_host():
    here, there = (planner.plan(run(zero={"stage": 2, "offload_optimizer": offload}), 8) for offload in (False, True))
    assert here.host == 0 and there.parts["optimizer"] == there.parts["gradients"] == 0
    assert there.host >= here.parts["optimizer"] + 4 * 1_557_200_000 // 8  # and fp32 gradients
    params = planner.plan(run(zero={"stage": 3, "offload_optimizer": True, "offload_param": True}), 8)
    assert params.parts["weights"] < 0.01 * here.parts["weights"] and params.host > there.host * 0.8


def apply(settings, ranks, changes):
    """The settings after `changes`, read as a user would: --set, and GPUs."""
    overrides = []
    for change, _ in changes:
        said, _, gpus = change.partition(" on ")
        ranks = int(gpus.split()[0]) if gpus else ranks
        overrides += said.split()
    return load(PretrainConfig, settings, overrides), ranks


@pytest.mark.parametrize("name", ["gpt2-345m.yaml", "gpt2-xl.yaml"])
def test_advice_comes_true(name):
    settings = load(PretrainConfig, name)
    ranks = settings.launch.ranks or 1
    batch = settings.batch.resolve(ranks).local * ranks
    for fit in planner.what_fits(settings):
        assert fit.fits == (planner.plan(settings).total <= fit.card * GB) == (not fit.changes)
        for end in range(1, len(fit.changes) + 1):
            changed, gpus = apply(name, ranks, fit.changes[:end])
            assert planner.plan(changed, gpus).total == fit.changes[end - 1][1]
            assert gpus > ranks or changed.batch.resolve(gpus).total == batch
        if fit.changes:
            assert all(total > fit.card * GB for _, total in fit.changes[:-1])
            assert ("even with" in str(fit)) == (fit.changes[-1][1] > fit.card * GB)
