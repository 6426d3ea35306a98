"""The model of a run and its schedule."""

import math
from typing import Any

import pytest
import torch
from course_lib.errors import UsageError
from course_lib.pretrain.config import ModelConfig, RateConfig
from course_lib.pretrain.gpt2_trainer import decays
from course_lib.pretrain.model import build_model
from course_lib.pretrain.rates import learning_rate


def gradients(recompute: Any, attention: Any) -> list[torch.Tensor]:
    shape = ModelConfig(vocab_size=50, hidden_size=32, num_layers=2, num_attention_heads=2, max_position_embeddings=16,
                        recompute=recompute, attention=attention)  # fmt: skip
    torch.manual_seed(0)
    model = build_model(shape).train()
    torch.manual_seed(1)  # of dropout, which has to be drawn alike the second time
    model(torch.arange(32).view(2, 16), use_cache=False).logits.logsumexp(-1).mean().backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("recompute", ["core_attn", "full_attn", "full"])
def test_recomputing_changes_no_gradient(recompute, attention):
    assert all(map(torch.equal, gradients("none", attention), gradients(recompute, attention)))


def test_only_matrices_and_embeddings_decay():
    names = [
        name
        for name, _ in build_model(
            ModelConfig(vocab_size=50, hidden_size=32, num_layers=1, num_attention_heads=2)
        ).named_parameters()
    ]
    assert [name for name in names if decays(name)] == [
        "transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_proj.weight",
        "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_proj.weight",
    ]  # fmt: skip


def test_the_model_starts_as_one_that_guesses():
    torch.manual_seed(0)
    model = build_model(ModelConfig(vocab_size=500, hidden_size=64, num_layers=2, num_attention_heads=2)).eval()
    ids = torch.randint(500, (4, 65))
    loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(500), abs=0.1)


def test_the_schedule_is_fleetx():
    rate = RateConfig(max=5e-5, min=1e-5, warmup_rate=0.01, decay_steps=360_000)
    wanted = {1: 5e-5 / 3600, 2: 2.77778e-8, 3600: 5e-5, 181_800: 3e-5, 360_000: 1e-5, 400_000: 1e-5}
    assert {step: learning_rate(rate, step, 500_000) for step in wanted} == pytest.approx(wanted, rel=1e-5)
    line = RateConfig(max=1e-4, min=0, warmup_steps=10, decay="linear")
    assert [learning_rate(line, step, 110) for step in (5, 10, 60, 110)] == pytest.approx([5e-5, 1e-4, 5e-5, 0])
    assert learning_rate(RateConfig(warmup_steps=0), 1, 100) == pytest.approx(5e-5, rel=1e-3)
    with pytest.raises(UsageError, match=r"warmup_steps: 11 is not allowed: must not exceed the 10 decay steps"):
        learning_rate(RateConfig(warmup_steps=11), 1, 10)
