"""The model of a run and its schedule."""

from typing import Any

import pytest
import torch
from course_lib.errors import UsageError
from course_lib.models.causal import build_model
from course_lib.models.config import ModelConfig
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training.lr_schedule import learning_rate
from course_lib.training.parameter_groups import decays
from course_lib.training.settings import RateConfig

ARCHITECTURES: list[Any] = ["gpt2", "gpt-neox"]


def gradients(architecture: Any, recompute: Any, attention: Any) -> list[torch.Tensor]:
    shape = ModelConfig(architecture, vocab_size=50, hidden_size=32, num_layers=2, num_attention_heads=2, max_position_embeddings=16,
                        recompute=recompute, attention=attention)  # fmt: skip
    torch.manual_seed(0)
    model = build_model(shape).train()
    torch.manual_seed(1)  # of dropout, which has to be drawn alike the second time
    model(torch.arange(32).view(2, 16), use_cache=False).logits.logsumexp(-1).mean().backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("recompute", ["core_attn", "full_attn", "full"])
def test_recomputing_changes_no_gradient(architecture, recompute, attention):
    wanted = gradients(architecture, "none", attention)
    assert all(map(torch.equal, wanted, gradients(architecture, recompute, attention)))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_each_architecture_computes_its_own_attention_again(attention):
    """They live in one process: what recompute registers for one must not become the other's."""
    models = [
        build_model(ModelConfig(kind, 50, 32, 1, 2, recompute="core_attn", attention=attention))
        for kind in ("gpt2", "gpt-neox")
    ]
    assert len({model.config._attn_implementation for model in models}) == 2


def test_only_matrices_and_embeddings_decay():
    for architecture in ARCHITECTURES:
        shape = ModelConfig(architecture, vocab_size=50, hidden_size=32, num_layers=1, num_attention_heads=2)
        assert all(decays(name) == (p.ndim > 1) for name, p in build_model(shape).named_parameters())


def test_both_start_alike():
    """Standard deviations by kind of weight: those that write into the residual stream are smaller by √(2·layers)."""
    torch.manual_seed(0)
    gpt2, neox = (build_model(ModelConfig(kind, 400, 128, 8, 2, initializer_range=0.1)) for kind in ARCHITECTURES)
    a, b = gpt2.transformer.h[-1], neox.gpt_neox.layers[-1]
    for first, second, wanted in (
        (gpt2.transformer.wte, neox.gpt_neox.embed_in, 0.1),
        (gpt2.lm_head, neox.lm_head, 0.1),
        (a.attn.c_attn, b.attention.query_key_value, 0.1),
        (a.mlp.c_fc, b.mlp.dense_h_to_4h, 0.1),
        (a.attn.c_proj, b.attention.dense, 0.1 / 4),
        (a.mlp.c_proj, b.mlp.dense_4h_to_h, 0.1 / 4),
    ):
        assert [first.weight.std().item(), second.weight.std().item()] == pytest.approx([wanted] * 2, rel=0.03)


def test_shapes_that_cannot_be_are_refused_in_a_line():
    for overrides, words in {
        ("model.rotary_pct=0.5",): "needs model.architecture gpt-neox",
        ("model.architecture=gpt-neox", "model.rotary_pct=0.3"): "rotates 19 of a head's 64",
        ("model.architecture=llama",): "one of 'gpt2', 'gpt-neox'",
    }.items():
        with pytest.raises(UsageError, match=words):
            config.build(PretrainConfig, {}, overrides)


def test_the_schedule_is_fleetx():
    rate = RateConfig(max=5e-5, min=1e-5, warmup_rate=0.01, decay_steps=360_000)
    wanted = {1: 5e-5 / 3600, 2: 2.77778e-8, 3600: 5e-5, 181_800: 3e-5, 360_000: 1e-5, 400_000: 1e-5}
    assert {step: learning_rate(rate, step, 500_000) for step in wanted} == pytest.approx(wanted, rel=1e-5)
    line = RateConfig(max=1e-4, min=0, warmup_steps=10, decay="linear")
    assert [learning_rate(line, step, 110) for step in (5, 10, 60, 110)] == pytest.approx([5e-5, 1e-4, 5e-5, 0])
    assert learning_rate(RateConfig(warmup_steps=0), 1, 100) == pytest.approx(5e-5, rel=1e-3)
    with pytest.raises(UsageError, match=r"warmup_steps: 11 is not allowed"):
        learning_rate(RateConfig(warmup_steps=11), 1, 10)
