"""The weights of a Hugging Face folder: read on demand, one order of files, nothing lost in writing."""

import json
from pathlib import Path

import pytest
import torch
from course_lib.checkpoints import weight_files
from course_lib.errors import CourseError
from safetensors.torch import save_file

from tests.weights import read_tensors

TENSORS = {
    "b.weight": torch.randn(5, 3), "a.bias": torch.arange(7).half(), "a.scalar": torch.tensor(2.0), "c": torch.ones(4, dtype=torch.bool),
    "h.0.attn.bias": torch.ones(2, 2), "rotary_emb.inv_freq": torch.ones(2),
}  # fmt: skip
LEFTOVERS = {"h.0.attn.bias", "rotary_emb.inv_freq"}


def read(folder: Path) -> dict[str, torch.Tensor]:
    return {name: weight.contiguous() for name, weight in weight_files.by_name(folder).items()}


@pytest.mark.parametrize("shard", [10**9, 40, 1])
def test_written_is_what_is_read(tmp_path: Path, shard: int) -> None:
    shared = torch.randn(4, 6)
    tensors = TENSORS | {"view": shared.t(), "same": shared}
    assert weight_files.write(tensors.items(), tmp_path, shard) == sum(t.numel() for t in tensors.values())
    assert not list(tmp_path.glob("*.part")) and len(weight_files.files(tmp_path)) == {10**9: 1, 40: 5, 1: 8}[shard]
    for found, expected in ((read_tensors(tmp_path), tensors.keys()), (read(tmp_path), tensors.keys() - LEFTOVERS)):
        assert found.keys() == expected
        assert all(found[n].dtype == tensors[n].dtype and torch.equal(found[n], tensors[n]) for n in expected)
    if shard == 1:
        index = json.loads((tmp_path / weight_files.INDEX).read_text())
        assert list(index["weight_map"]) == list(tensors)
        assert index["metadata"] == {"total_size": sum(t.nbytes for t in tensors.values())}


def test_whole_file_then_index_then_pickle(tmp_path: Path) -> None:
    with pytest.raises(
        CourseError, match=r"holds no weights; expected one of model\.safetensors, .+\.bin\.index\.json"
    ):
        weight_files.files(tmp_path)
    torch.save({"x": torch.zeros(1), "note": "no tensor"}, tmp_path / "pytorch_model.bin")
    assert read(tmp_path) == {"x": torch.zeros(1)}
    weight_files.write([("x", torch.ones(1)), ("y", torch.ones(1))], tmp_path, 1)
    assert read(tmp_path) == {"x": torch.ones(1), "y": torch.ones(1)}
    save_file({"x": torch.full((1,), 2.0)}, tmp_path / "model.safetensors")
    assert read(tmp_path) == {"x": torch.full((1,), 2.0)}
