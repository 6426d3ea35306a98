import json
from typing import Any

import numpy as np
import pytest
import torch
from course_lib.gptsan.configuration import GPTSanConfig
from course_lib.gptsan.model import GPTSanForCausalLM
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

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
    kept = inputs["attention_mask"].bool()
    expected = torch.from_numpy(np.load(FIXTURE)[name])
    torch.testing.assert_close(found[kept], expected[kept], rtol=0, atol=1e-5)


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
    for more, message in (
        ({"attention_mask": torch.ones(2, 8)}, "attention_mask: has 8 columns, but there are 9 tokens so far"),
        ({"token_type_ids": torch.ones(2, 7)}, "token_type_ids: has 7 columns, but there are 9 tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            model(ids, **more)
    with pytest.raises(ValueError, match="no spout"):
        build(d_spout=0)(ids, spout=spout)


# Generation


def greedy(model: GPTSanForCausalLM, ids: Tensor, new: int, **more: Any) -> tuple[Tensor, Tensor]:
    """By full recomputes, without the model's help: the tokens [B, T + new] and the logits [new, B, V] that chose them."""
    steps = []
    for _ in range(new):
        steps.append(logits(model, ids, **more)[:, -1])
        ids = torch.cat([ids, steps[-1].argmax(-1, keepdim=True)], 1)
        more |= {
            name: torch.nn.functional.pad(more[name], (0, 1), value=value)
            for name, value in (("attention_mask", 1), ("token_type_ids", 0))
            if name in more
        }
    return ids, torch.stack(steps)


def asked(way: str, ids: Tensor, spout: Tensor) -> dict[str, Any]:
    more: dict[str, Any] = {"spout": spout} if "spout" in way else {}
    if "prefix" in way or "all" in way:
        more["token_type_ids"] = types(*[1] * 9) if "all" in way else types(1, 1, 1, 1, 1, 0, 0, 0, 0)
    if "padding" in way:
        more["attention_mask"] = torch.ones_like(ids)
        more["attention_mask"][0, :3] = 0
    return more


@pytest.mark.parametrize("way", ["", "prefix", "spout prefix padding", "spout all"])
def test_generation_is_what_full_recomputes_give(model, ids, spout, way):
    more = asked(way, ids, spout)
    expected, scores = greedy(model, ids, 8, **more)
    for cached in (True, False):
        settings = {"use_cache": cached, "return_dict_in_generate": True, "output_logits": True}
        found = model.generate(ids, max_new_tokens=8, do_sample=False, **settings, **more)
        assert found.sequences.tolist() == expected.tolist()
        torch.testing.assert_close(torch.stack(found.logits), scores, rtol=0, atol=1e-5)


def test_generation_goes_on_from_a_cache(model, ids, spout):
    way = "spout padding"
    more, cache = asked(way, ids, spout), DynamicCache(config=model.config)
    first = model.generate(ids, max_new_tokens=4, past_key_values=cache, **more)
    assert cache.get_seq_length() == 1 + 9 + 3  # the spout's position, too
    more["attention_mask"] = torch.nn.functional.pad(more["attention_mask"], (0, 4), value=1)
    again = model.generate(first, max_new_tokens=4, past_key_values=cache, **more)
    assert again.tolist() == greedy(model, ids, 8, **asked(way, ids, spout))[0].tolist()


def test_the_padding_token_is_a_word_where_no_mask_is_given(model, ids):
    """SEP, the padding token of the published model, stands at the end of each sentence."""
    with_separator = ids.clone()
    with_separator[:, 2] = model.config.pad_token_id
    expected, _ = greedy(model, with_separator, 5)
    assert model.generate(with_separator, max_new_tokens=5, do_sample=False).tolist() == expected.tolist()


# Training


def test_loss_is_of_the_next_token_plus_the_routers(ids):
    model = build().train()
    labels = ids.clone()
    labels[:, :4] = -100
    found = model(ids, labels=labels)
    chosen = found.logits[:, 3:-1].log_softmax(-1).gather(2, ids[:, 4:, None])
    torch.testing.assert_close(found.loss, -chosen.mean() + found.router_loss)
    assert found.router_loss > 0
    assert found.past_key_values is None
    found.loss.backward()
    assert model.model.blocks[0].feed_forward.mlp.router.classifier.weight.grad.any()
    assert [name for name, p in model.named_parameters() if p.grad is None and ".spout." not in name] == []


def test_recomputed_blocks_have_the_same_gradients(ids, spout):
    model = build(router_jitter_noise=0.1).train()
    inputs = {"input_ids": ids, "spout": spout, "token_type_ids": types(1, 1, 1, 0, 0, 0, 0, 0, 0)}

    def gradients() -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        return torch.autograd.grad(model(**inputs, labels=ids).loss, tuple(model.parameters()))

    plain = gradients()
    model.activation_checkpointing_enable()
    torch.testing.assert_close(gradients(), plain)
