from typing import Any

import pytest
import torch
from course_lib.gptsan.experts import SwitchMLP, balance_loss, capacity, group_count, within_capacity
from course_lib.gptsan.hf_config import GPTSanConfig
from torch import Tensor

E = 4


def settings(**more: Any) -> GPTSanConfig:
    return GPTSanConfig(**{"d_model": 16, "d_ff": 32, "num_heads": 2, "num_experts": E} | more)


def one_by_one(mlp: SwitchMLP, x: Tensor) -> Tensor:
    """The definition: token after token, each expert with a counter."""
    config, rows = mlp.config, []
    limit, counts = capacity(config, x.shape[0] * x.shape[1], mlp.training), [0] * E
    for token in x.flatten(0, 1):
        probability, expert = mlp.router(token[None, None]).softmax(-1).max(-1)
        counts[int(expert)] += 1
        fits = counts[int(expert)] <= limit
        rows.append(mlp.experts[f"expert_{int(expert)}"](token) * probability.flatten() * fits)
    return torch.stack(rows).view_as(x)


def test_tokens_go_into_equal_groups_of_about_a_thousand():
    assert [group_count(tokens) for tokens in (1, 1023, 2048, 2049, 2 * 1021)] == [1, 1, 2, 3, 1]


def test_a_full_expert_in_one_group_takes_from_the_next():
    expert = torch.zeros(4, 1024, dtype=torch.long)  # all want the same one
    served = within_capacity(expert, settings(eval_capacity_factor=1.0), training=False)
    assert served.sum((1, 2)).tolist() == [1024 // E] * 4


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        {"train_capacity_factor": E, "eval_capacity_factor": E},
        {"train_capacity_factor": 0.5, "eval_capacity_factor": 0.8},
    ],
)
def test_what_is_computed_by_expert_is_what_the_definition_says(more, training):
    torch.manual_seed(3)
    mlp = SwitchMLP(settings(**more)).train(training)
    x = torch.randn(3, 11, 16, requires_grad=True)
    found, expected = mlp(x)[0], one_by_one(mlp, x)
    torch.testing.assert_close(found, expected)
    parts = [x, *mlp.parameters()]
    weight = torch.randn_like(found)
    torch.testing.assert_close(*(torch.autograd.grad((y * weight).sum(), parts) for y in (found, expected)))


@pytest.mark.parametrize(
    ("group", "training", "expected"),
    [(1024, True, 80), (1024, False, 128), (64, False, 8), (10, True, 4), (3, True, 4), (1, False, 4)],
)
def test_capacity_is_the_original_formula(group, training, expected):
    assert capacity(GPTSanConfig(), group, training) == expected


def test_the_router_computes_in_fp32():
    mlp = SwitchMLP(settings()).to(torch.bfloat16)
    x = torch.randn(2, 5, 16, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y, logits = mlp(x)
    router = mlp.router.classifier
    exact = x.double() @ router.weight.double().t()
    torch.testing.assert_close(logits.double(), exact, rtol=1e-5, atol=1e-6)
    assert (y.dtype, logits.dtype) == (torch.bfloat16, torch.float32)


def test_jitter_moves_the_router_by_a_percent_and_in_training_only():
    torch.manual_seed(0)
    mlp = SwitchMLP(settings(router_jitter_noise=0.01))
    x = torch.randn(2, 50, 16)
    plain = mlp.eval()(x)[1]
    torch.testing.assert_close(mlp(x)[1], plain, rtol=0, atol=0)
    moved = mlp.train()(x)[1]
    bound = 0.01 * (x.abs() @ mlp.router.classifier.weight.abs().t())
    assert (moved - plain).abs().max() > 0
    assert ((moved - plain).abs() <= bound * 1.001).all()


def test_balance_loss():
    even = torch.zeros(2, 4, E).scatter(2, torch.arange(E).repeat(2, 1)[..., None], 1e-4)
    torch.testing.assert_close(balance_loss([even, even]), torch.tensor(2.0), rtol=1e-3, atol=0)
    one = torch.zeros(2, 4, E)
    one[..., 0] = 100.0
    torch.testing.assert_close(balance_loss([one]), torch.tensor(float(E)))  # E² · mean of (1·1, 0, 0, 0)
