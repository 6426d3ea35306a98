"""The planner's prefix against the model: parameters to the last one, allocations of PyTorch, and what the command says."""

import pytest
import torch
import yaml
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.generation.prefix_cache import Shape
from course_lib.models.causal import model_config
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.model import PrefixModel, new_encoder, recompute
from course_lib.prefix.report import count
from course_lib.prefix.samples import loss
from course_lib.settings.config import build
from transformers import AutoModelForCausalLM

from tests.allocations import allocated, norms_as_on_a_gpu
from tests.prefix import bases

ROWS, LENGTH, PREFIX, VOCABULARY = 4, 128, 16, 1500
ARCHITECTURES = ("gpt2", "gpt-neox")


def settings(folder, architecture, *overrides):
    shape = {
        "architecture": architecture, "vocab_size": VOCABULARY, "hidden_size": 64, "num_layers": 3, "num_attention_heads": 4,
        "max_position_embeddings": 256, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip
    (folder / "run.yaml").write_text(yaml.safe_dump({"model": shape, "data": {"seq_length": LENGTH}}))
    values = {
        "model": {"shape": str(folder / "run.yaml"), "length": PREFIX},
        "data": {"max_length": LENGTH}, "batch": {"micro_size": ROWS}, "precision": {"dtype": "fp32"},
    }  # fmt: skip
    return build(PrefixConfig, values, overrides)


def model_of(given):
    config = model_config(given.model.base_shape())
    base = AutoModelForCausalLM.from_config(config, dtype=TORCH[given.precision.dtype])
    if given.model.recompute == "full":
        recompute(base)
    if given.model.method == "full":
        return PrefixModel(base, None).train()
    encoder = new_encoder(given.model, Shape.of(config)).to(base.dtype)
    return PrefixModel(base.requires_grad_(False), encoder).train()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("method", ["mlp", "embedding", "full"])
def test_parameters(tmp_path, architecture, method):
    given = settings(tmp_path, architecture, f"model.method={method}")
    model, found = model_of(given), given.sizes()
    assert [size for size, _ in found.trained] == [p.numel() for p in model.parameters() if p.requires_grad]
    assert list(found.frozen) == [p.numel() for p in model.parameters() if not p.requires_grad]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("again", "dtype"), [("none", "fp32"), ("none", "bf16"), ("full", "bf16")])
@pytest.mark.parametrize("method", ["mlp", "full"])
@pytest.mark.parametrize("autocast", [pytest.param(False, marks=pytest.mark.rehearse), True])
def test_activations_and_logits_are_what_pytorch_allocates(
    tmp_path, monkeypatch, architecture, again, dtype, method, autocast
):
    if dtype == "fp32" and autocast:
        pytest.skip("nothing to cast")
    norms_as_on_a_gpu(monkeypatch)
    chosen = f"model.recompute={again}", f"precision.dtype={dtype}", f"model.method={method}"
    given = settings(tmp_path, architecture, *chosen)
    model, planned = model_of(given), given.sizes(autocast)
    for parameter in model.parameters():
        if parameter.requires_grad and autocast:
            parameter.data = parameter.data.float()
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    ids = torch.randint(0, VOCABULARY, (ROWS, LENGTH))

    def forward():
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return loss(model(ids), ids)

    saved, _, found = allocated(forward)
    del found
    stored = planned.activations + planned.saved_casts
    assert saved == pytest.approx(stored + planned.logits / 3, rel=0.08)  # the log-softmax stays
    _, peak, _ = allocated(lambda: forward().backward())
    assert peak == pytest.approx(stored + max(planned.logits, planned.layer_backward), rel=0.05)


@pytest.mark.parametrize("family", bases.FAMILIES)
def test_the_shape_of_a_base(tmp_path, family):
    """By its config.json, in the planner."""
    base = bases.base(family)
    base.config.save_pretrained(tmp_path)
    given = build(PrefixConfig, {"model": {"base": str(tmp_path)}})
    assert list(given.sizes().frozen) == [p.numel() for p in base.parameters()]


def test_a_prefix_of_rinnas_model_of_3_6_billion_parameters():
    counts = count(Shape(36, 22, 128), 3_607_245_312, 20, 64, 64)
    assert (counts.trained, counts.deployed) == (13_184_320, 4_055_040)
