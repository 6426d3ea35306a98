"""The base: which folders are taken, and a digest of the weights that does not see how they are stored in files."""

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
