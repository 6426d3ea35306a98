"""The extra stage: what is copied, new, frozen and written, on models built here."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from course_lib.checkpoints import weight_files
from course_lib.errors import CourseError, UsageError
from course_lib.gptsan.config import GPTSanRunConfig
from course_lib.gptsan.extra_stage import add_extra_stage
from course_lib.gptsan.hf_config import GPTSanConfig
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.settings import config

from tests.weights import read_tensors

SHAPE = {
    "vocab_size": 12, "max_position_embeddings": 6, "d_model": 16, "d_ff": 32, "d_ext": 24, "d_spout": 4, "num_switch_layers": 2,
    "num_heads": 2, "num_experts": 3, "separator_token_id": 10, "pad_token_id": 7, "eos_token_id": 11,
}  # fmt: skip
OUT = "model.spout.16.weight"
ETE = "model.extra_position_embeddings.weight"


def build(folder: Path, ext: int = 0, dtype: torch.dtype = torch.float32, size: str = "50GB") -> Path:
    torch.manual_seed(1)
    model = GPTSanForCausalLM(GPTSanConfig(**SHAPE, num_ext_layers=ext)).to(dtype)
    for value in model.state_dict().values():
        torch.nn.init.normal_(value)
    model.save_pretrained(folder, max_shard_size=size)
    (folder / "vocab.txt").write_text("a\nb")
    (folder / "emoji.json").write_text("{}")
    return folder


@pytest.mark.parametrize(("ext", "dtype", "size"), [(0, torch.float32, "50GB"), (1, torch.float16, "10KB")])
def test_kept_new_and_frozen(tmp_path: Path, ext: int, dtype: torch.dtype, size: str, monkeypatch):
    if size != "50GB":
        monkeypatch.setattr(weight_files, "SHARD", 10_000)
    source = build(tmp_path / "base", ext, dtype, size)
    before = read_tensors(source)
    report = add_extra_stage(source, tmp_path / "out", 2, seed=3)
    old, new = read_tensors(source), read_tensors(tmp_path / "out")
    assert all(torch.equal(before[name], value) for name, value in old.items())
    copied = old.keys() - {OUT, "lm_head.weight"}
    for name in copied:
        assert new[name].dtype == old[name].dtype
        assert torch.equal(new[name], old[name])
    first = 2 + ext
    made = new.keys() - copied
    assert {name for name in made if ".blocks." not in name} == ({OUT} if ext else {OUT, ETE})
    assert {name.split(".")[2] for name in made if ".blocks." in name} == {str(first), str(first + 1)}
    for name in made:
        assert new[name].dtype == dtype
        if name.endswith("norm.weight"):
            assert (new[name] == 1).all()
        elif name.endswith("norm.bias") or name == ETE:
            assert (new[name] == 0).all()
    assert new[OUT].shape == ((first + 2) * 2 * 16, 4)
    assert abs(new[OUT].float().std() - 0.02) < 0.002

    model, info = GPTSanForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    parameters = dict(model.named_parameters())
    frozen = json.loads((tmp_path / "out/ignore-params.json").read_text())
    assert set(frozen) <= parameters.keys()
    assert parameters.keys() - set(frozen) == made | {f"model.spout.{2 * i}.weight" for i in range(8)}
    assert report["frozen"] == len(frozen) == len(set(frozen))
    model(input_ids=torch.tensor([[1, 2, 3]]), spout=torch.zeros(1, 4, dtype=model.dtype))


def test_settings_of_training(tmp_path: Path):
    add_extra_stage(build(tmp_path / "base", ext=1), tmp_path / "out", 3)
    assert str(tmp_path) not in (tmp_path / "out/train.yaml").read_text()
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    settings = config.load(GPTSanRunConfig, tmp_path / "copy/train.yaml")
    assert settings.model.checkpoint == tmp_path / "copy"
    assert settings.model.ignore == tmp_path / "copy/ignore-params.json"
    assert settings.engine.output_dir == tmp_path / "copy-trained"
    assert settings.spout.mode == "none" and settings.data.num_context is None
    assert (tmp_path / "out/vocab.txt").read_text() == "a\nb"


def test_weights_of_the_published_form(tmp_path: Path):
    """pytorch_model.bin, the tied head stored too, the spout under the name that the port's converter gave it."""
    source = build(tmp_path / "base")
    model = GPTSanForCausalLM.from_pretrained(source)
    stored = {name.replace("model.spout.", "model.sqout."): value for name, value in model.state_dict().items()}
    assert "lm_head.weight" in stored
    torch.save(stored, source / "pytorch_model.bin")
    before = read_tensors(source)
    (source / "model.safetensors").unlink()
    add_extra_stage(source, tmp_path / "out", 1)
    new = read_tensors(tmp_path / "out")
    assert torch.equal(new["model.spout.2.weight"], before["model.spout.2.weight"])
    assert "lm_head.weight" not in new


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda f: (f / "config.json").write_text('{"model_type": "gpt2"}'), "not a GPTSAN"),
        (lambda f: edit(f, num_switch_layers=999999999), "num_switch_layers: 999999999"),
        (lambda f: edit(f, num_ext_layers=2), "missing model.blocks.2.+ and .+ more"),
    ],
)
def test_other_sources_are_named(tmp_path: Path, damage, line):
    source = build(tmp_path / "base")
    damage(source)
    with pytest.raises(CourseError, match=line) as caught:
        add_extra_stage(source, tmp_path / "out", 1)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base"]


def edit(folder: Path, **changes: int) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_refuses_what_exists_and_no_layers(tmp_path: Path):
    source = build(tmp_path / "base")
    with pytest.raises(UsageError, match="is inside it"):
        add_extra_stage(source, source / "stage", 1)
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        add_extra_stage(source, tmp_path / "out", 1)
    for layers in 0, 1_000_000:
        with pytest.raises(UsageError, match=f"--layers: {layers}"):
            add_extra_stage(source, tmp_path / "new", layers)
