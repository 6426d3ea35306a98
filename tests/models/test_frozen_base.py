"""The base: which folders are taken, and a digest of the weights that does not see how they are stored in files."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from course_lib.errors import CourseError
from course_lib.models.frozen_base import digest, load
from safetensors.torch import load_file, save_file
from transformers import T5Config, T5ForConditionalGeneration

from tests.prefix.bases import FAMILIES, base


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    base(request.param).save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def test_a_base_is_frozen_and_of_the_wanted_numbers(folder: Path) -> None:
    model = load(folder, torch.bfloat16, "eager")
    assert not model.training and model.config._attn_implementation == "eager"
    assert {(weight.dtype, weight.requires_grad) for weight in model.parameters()} == {(torch.bfloat16, False)}


def test_the_digest_does_not_see_the_files(folder: Path, tmp_path: Path) -> None:
    found = digest(folder)
    model = load(folder)
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    assert digest(tmp_path / "shards") == found
    weights = load_file(folder / "model.safetensors")
    shutil.copytree(folder, tmp_path / "bin")
    (tmp_path / "bin/model.safetensors").unlink()
    torch.save(dict(reversed(weights.items())), tmp_path / "bin/pytorch_model.bin")
    assert digest(tmp_path / "bin") == found


def test_the_digest_sees_every_bit_name_shape_and_number_format(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    name = sorted(weights)[3]
    seen = {digest(folder)}
    flipped = weights[name].clone()
    flipped.view(torch.int32).view(-1)[-1] ^= 1
    for changed in (flipped, weights[name][None], weights[name].double(), weights[name].to(torch.bfloat16)):
        save_file(weights | {name: changed.contiguous()}, file, {"format": "pt"})
        seen.add(digest(folder))
    save_file({"x" + key: tensor for key, tensor in weights.items()}, file, {"format": "pt"})
    seen.add(digest(folder))
    assert len(seen) == 6


def test_what_is_no_base_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    size = {"vocab_size": 8, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    T5ForConditionalGeneration(T5Config(**size)).save_pretrained(tmp_path / "t5")
    with pytest.raises(CourseError, match="a t5 model; allowed: gpt2, gpt_neox"):
        load(tmp_path / "t5")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    for reader in (load, digest):
        with pytest.raises(CourseError, match="cut short"):
            reader(folder)


def as_stored(weights: dict[str, torch.Tensor]) -> str:
    """The digest of earlier versions: of all tensors of a file as they are."""
    total = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


def test_masks_a_repeated_head_and_short_names_are_the_same_base(folder: Path, tmp_path: Path) -> None:
    found = digest(folder)
    weights = load_file(folder / "model.safetensors")
    assert found == as_stored(weights)
    is_gpt2 = "transformer.wte.weight" in weights
    more: dict[str, torch.Tensor] = {}
    for layer in range(3):
        where = f"transformer.h.{layer}.attn" if is_gpt2 else f"gpt_neox.layers.{layer}.attention"
        more[f"{where}.bias"] = torch.ones(1, 1, 48, 48, dtype=torch.uint8).tril()
        more[f"{where}.masked_bias"] = torch.tensor(-1e4)
    if is_gpt2:
        more["lm_head.weight"] = weights["transformer.wte.weight"]
    shutil.copytree(folder, tmp_path / "bin")
    (tmp_path / "bin/model.safetensors").unlink()
    torch.save(weights | more, tmp_path / "bin/pytorch_model.bin")
    assert digest(tmp_path / "bin") == found
    # What a prefix recorded before stays right.
    old = as_stored(weights | more)
    assert digest(tmp_path / "bin", old) == old != found == digest(tmp_path / "bin", "0" * 64)
    short = {name.removeprefix("transformer.").removeprefix("gpt_neox."): value for name, value in weights.items()}
    torch.save(short, tmp_path / "bin/pytorch_model.bin")
    assert digest(tmp_path / "bin") == found


def test_integers_are_no_weights(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    name = sorted(weights)[3]
    for dtype in (torch.int8, torch.uint8, torch.int64, torch.bool):
        save_file(weights | {name: weights[name].to(dtype)}, folder / "model.safetensors", {"format": "pt"})
        with pytest.raises(CourseError, match=f"{name} is stored as {str(dtype).removeprefix('torch.')}; allowed: "):
            load(folder)
    save_file(weights | {name: weights[name].double()}, folder / "model.safetensors", {"format": "pt"})
    assert load(folder)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("num_hidden_layers", 10**9, "1000000000 layers, the weights are"),
        ("vocab_size", 10**9, "parameters, the weights hold"),
        ("max_position_embeddings", 10**12, "parameters, the weights hold"),
        ("hidden_size", 1 << 20, "parameters, the weights hold"),
    ],
)
def test_sizes_are_compared_with_the_file_before_a_model_is_built(
    folder: Path, key: str, value: int, said: str
) -> None:
    config = json.loads((folder / "config.json").read_text())
    names = {"num_hidden_layers": "n_layer", "max_position_embeddings": "n_positions", "hidden_size": "n_embd"}
    name = names.get(key, key) if config["model_type"] == "gpt2" else key
    if name == "max_position_embeddings":
        pytest.skip("a GPT-NeoX has no weights for its positions")
    (folder / "config.json").write_text(json.dumps(config | {name: value}))
    with pytest.raises(CourseError, match=said):
        load(folder)
