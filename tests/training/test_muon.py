"""Muon against the loop that it was tried in (a prototype of one page, written anew here), and against a decomposition."""

from typing import Any

import pytest
import torch
from course_lib.models.causal import build_model
from course_lib.models.config import ModelConfig
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings.config import build
from course_lib.training import muon
from course_lib.training.lr_schedule import learning_rate
from course_lib.training.settings import MuonConfig
from torch.nn import functional

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


def prototype_losses(model: Any, batches: list[torch.Tensor]) -> list[float]:
    """The prototype's loop in fp32, with a rate that follows the steps and all gradients clipped together."""
    named = dict(model.named_parameters())
    by_shape: dict[tuple[int, ...], list[Any]] = {}
    rest = []
    for name, weight in named.items():
        if weight.ndim == 2 and ".h." in name:
            by_shape.setdefault(tuple(weight.shape), []).append(weight)
        else:
            rest.append(weight)
    momenta = {shape: torch.zeros(len(weights), *shape) for shape, weights in by_shape.items()}
    adamw = torch.optim.AdamW(rest, lr=LR, betas=(0.9, 0.95), weight_decay=0.0)

    def forward(ids):
        t = model.transformer
        rows, length = ids.shape
        h = t.wte(ids) + t.wpe.weight[:length]
        for block in t.h:
            q, k, v = block.attn.c_attn(block.ln_1(h)).split(WIDTH, 2)
            q, k, v = (z.view(rows, length, HEADS, -1).transpose(1, 2) for z in (q, k, v))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + block.attn.c_proj(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
            h = h + block.mlp.c_proj(functional.gelu(block.mlp.c_fc(block.ln_2(h)), approximate="tanh"))
        return functional.linear(t.ln_f(h), t.wte.weight)

    def newton_schulz(x):
        x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
        tall = x.size(1) > x.size(2)
        x = x.mT if tall else x
        for _ in range(5):
            a = x @ x.mT
            b = -4.7750 * a + 2.0315 * a @ a
            x = 3.4445 * x + b @ x
        return x.mT if tall else x

    losses = []
    for step, batch in enumerate(batches, 1):
        factor = min(1, step / STEPS / 0.1) * min(1, (1 - step / STEPS) / 0.75)
        loss = functional.cross_entropy(forward(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(named.values(), CLIP)
        for shape, weights in by_shape.items():
            gradients = torch.stack([weight.grad for weight in weights])
            momenta[shape].mul_(0.95).add_(gradients)
            update = gradients.add(momenta[shape], alpha=0.95)
            if shape[1] == 3 * shape[0]:
                update = newton_schulz(torch.cat(update.split(shape[0], 2), 0))
                update = torch.cat(update.split(len(weights), 0), 2)
                scale = MUON_LR * factor
            else:
                update = newton_schulz(update)
                scale = MUON_LR * factor * max(1, shape[1] / shape[0]) ** 0.5
            for weight, change in zip(weights, update, strict=True):
                weight.data.mul_(1 - MUON_LR * factor * MUON_DECAY).add_(change, alpha=-scale)
                weight.grad = None
        for group in adamw.param_groups:
            group["lr"] = LR * factor
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


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


def test_the_losses_are_those_of_the_prototype(settings):
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(build_model(settings.model))
    batches = samples()
    expected, found = prototype_losses(models[0], batches), losses_of_muon(settings, models[1], batches)
    assert found[0] == pytest.approx(expected[0], abs=1e-6)
    assert found == pytest.approx(expected, rel=1e-4)
    assert found[-1] < 0.9 * found[0]


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
