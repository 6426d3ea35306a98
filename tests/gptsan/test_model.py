import json
from typing import Any

import numpy as np
import pytest
import torch
from course_lib.gptsan.hf_config import GPTSanConfig
from course_lib.gptsan.model import GPTSanForCausalLM
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.gptsan.make_port_fixture import CASES, FIXTURE, SHAPE, fill, given

SHAPE = SHAPE | {"max_position_embeddings": 32, "eos_token_id": None, "pad_token_id": 0, "separator_token_id": 0}
ALL = {"train_capacity_factor": 3.0, "eval_capacity_factor": 3.0}  # nothing overflows


def build(**more: Any) -> GPTSanForCausalLM:
    model = GPTSanForCausalLM(GPTSanConfig(**SHAPE | ALL | more)).eval()
    with torch.no_grad():
        fill(model.state_dict())
    return model


@pytest.fixture(scope="module")
def model():
    return build()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(1, SHAPE["vocab_size"], (2, 9), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def spout():
    return torch.rand(2, SHAPE["d_spout"], generator=torch.Generator().manual_seed(1))


def logits(model: GPTSanForCausalLM, input_ids: Tensor, **more: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(input_ids, **more).logits
    return found


def types(*row: int, rows: int = 2) -> Tensor:
    return torch.tensor([row]).expand(rows, -1)


# Against transformers' port


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_the_port(name):
    inputs = given(CASES[name])
    found = logits(build(max_position_embeddings=10), **inputs)
    attended = inputs["attention_mask"].bool()
    expected = torch.from_numpy(np.load(FIXTURE)[name])
    torch.testing.assert_close(found[attended], expected[attended], rtol=0, atol=1e-5)


# Loading and saving

PUBLISHED: dict[str, Any] = {  # what the port writes, but for the shape
    "model_type": "gptsan-japanese",
    "num_layers": 4,
    "pad_token_id": 35995,
    "eos_token_id": 35999,
    "separator_token_id": 35998,
    "torch_dtype": "float32",
    "transformers_version": "4.27.0",
}


def test_a_published_folder_loads_with_every_tensor_in_place(tmp_path, model):
    """The tied head stored too, and the spout under the name that the port's converter gave it."""
    shape = {key: value for key, value in SHAPE.items() if not key.endswith("token_id")}
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED | shape | ALL))
    state = {name.replace(".spout.", ".sqout."): tensor for name, tensor in model.state_dict().items()}
    torch.save(state, tmp_path / "pytorch_model.bin")
    loaded, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is GPTSanForCausalLM
    assert not any(report.values())
    torch.testing.assert_close(dict(loaded.state_dict()), dict(model.state_dict()), rtol=0, atol=0)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    loaded.save_pretrained(tmp_path / "again")
    names = set(load_file(tmp_path / "again" / "model.safetensors"))
    assert names == set(model.state_dict()) - {"lm_head.weight"}


def test_initialisation_is_the_original():
    torch.manual_seed(0)
    model = GPTSanForCausalLM(GPTSanConfig(**SHAPE | {"d_model": 128, "vocab_size": 500, "d_spout": 64}))
    for name, weight in model.state_dict().items():
        small = any(part in name for part in ("position", "soft_bypass", "spout"))
        std = 0.01 if small else 0.02
        if "extra_position" in name or name in ("final_logits_bias", "model.last_project.bias") or "norm.bias" in name:
            assert not weight.any(), name
        elif "norm.weight" in name:
            assert (weight == 1).all(), name
        else:
            assert abs(weight.std() / std - 1) < 5 / weight.numel() ** 0.5, name


# Masks, prefix, spout


def test_spout_works_with_and_without_mask_and_prefix(model, ids, spout):
    ones, prefix = torch.ones_like(ids), types(1, 1, 1, 0, 0, 0, 0, 0, 0)
    found = logits(model, ids, spout=spout)
    assert (found - logits(model, ids)).abs().max() > 0.1
    for more in ({"attention_mask": ones}, {"token_type_ids": 0 * ones}):
        torch.testing.assert_close(logits(model, ids, spout=spout, **more), found)
    both = logits(model, ids, spout=spout, token_type_ids=prefix)
    assert (both - found).abs().max() > 0.1
    wide = torch.nn.functional.pad(prefix, (1, 0), value=1)
    for more in ({"token_type_ids": wide}, {"token_type_ids": prefix, "attention_mask": ones}):
        torch.testing.assert_close(logits(model, ids, spout=spout, **more), both)


def test_padding_on_the_left_changes_nothing(ids, spout):
    more, model = {"spout": spout}, build()
    prefix = types(1, 1, 1, 0, 0, 0, 0, 0, 0)
    alone = logits(model, ids, token_type_ids=prefix, **more)
    padded, mask, shifted = (torch.nn.functional.pad(t, (5, 0)) for t in (ids, torch.ones_like(ids), prefix))
    found = logits(model, padded, attention_mask=mask, token_type_ids=shifted, **more)
    torch.testing.assert_close(found[:, 5:], alone, rtol=1e-5, atol=1e-5)


def test_wrong_widths_are_refused(model, ids, spout):
    with pytest.raises(ValueError, match="attention_mask: has 8 columns, but there are 9"):
        model(ids, attention_mask=torch.ones(2, 8))
    with pytest.raises(ValueError, match="no spout"):
        build(d_spout=0)(ids, spout=spout)


def test_recomputed_blocks_have_the_same_gradients(ids, spout):
    model = build(router_jitter_noise=0.1).train()
    inputs = {"input_ids": ids, "spout": spout, "token_type_ids": types(1, 1, 1, 0, 0, 0, 0, 0, 0)}

    def gradients() -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        found = model(**inputs)
        return torch.autograd.grad(found.logits.square().mean() + found.aux_loss, tuple(model.parameters()))

    plain = gradients()
    model.activation_checkpointing_enable()
    torch.testing.assert_close(gradients(), plain)
