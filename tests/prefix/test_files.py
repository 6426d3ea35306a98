"""Files of prefixes: all four forms there and back, real peft on both ends, and files that are no prefix."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.errors import CourseError, UsageError
from course_lib.generation.prefix_cache import Shape
from course_lib.models import frozen_base
from course_lib.prefix.config import Form
from course_lib.prefix.files import Prefix, beside, read, write
from peft import CartridgeConfig, PeftModel, PrefixTuningConfig, get_peft_model
from safetensors.torch import save_file

from tests.generation.test_prefix_cache import ids, prefix, run
from tests.prefix.bases import FAMILIES, base

SHAPE = Shape(3, 4, 8)
FAMILY = pytest.mark.parametrize("family", FAMILIES)
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft


def some(length: int = 5) -> Prefix:
    return Prefix(prefix(length), "笑顔", "ab" * 32, SHAPE, {"length": length, "suffix": " 😃"})


def test_our_own_form_keeps_everything(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    write(some(), file)
    found = read(file)
    assert torch.equal(found.values, some().values) and len(found) == 5
    assert (found.task, found.base, found.shape, found.settings) == (some().task, some().base, SHAPE, some().settings)
    first = file.read_bytes()
    write(found, file)
    assert file.read_bytes() == first


def test_prefixes_beside_a_model(tmp_path: Path) -> None:
    assert beside(tmp_path) == {}
    folder = tmp_path / "prefixes"
    folder.mkdir()
    for name in ("tantei.safetensors", "dowa.safetensors", "README.md"):
        (folder / name).touch()
    assert list(beside(tmp_path).items()) == [(name, folder / f"{name}.safetensors") for name in ("dowa", "tantei")]


def test_rinnas_form(tmp_path: Path) -> None:
    """As prefix_tuning_example.py leaves it: one tensor, still in its graph, in the encoder's numbers."""
    file = tmp_path / "smileface_suffix.task0.weight"
    weight = torch.nn.Parameter(prefix(5).half())
    torch.save(weight * 1.0, file)
    found = read(file)
    assert found.values.dtype == torch.float32 and not found.values.requires_grad
    assert torch.equal(found.values, weight.detach().float())
    assert (found.task, found.base, found.shape) == ("smileface_suffix", "", None)
    write(found, file, "rinna")
    bare = torch.load(file, weights_only=True)
    assert torch.equal(bare, found.values) and bare.shape == (5, SHAPE.width) and not bare.requires_grad


@FAMILY
@pytest.mark.parametrize("form", ["peft", "cartridge"])
def test_peft_reads_what_we_write(family: str, form: Form, tmp_path: Path) -> None:
    base(family).save_pretrained(tmp_path / "base")
    mine = Prefix(prefix(5), "task")
    write(mine, tmp_path / "adapter", form, tmp_path / "base")
    theirs = PeftModel.from_pretrained(base(family), str(tmp_path / "adapter")).eval()
    text = ids(2, 7)
    expected = theirs(text, attention_mask=torch.ones_like(text)).logits
    torch.testing.assert_close(run(base(family), [mine.values] * 2, text), expected, atol=1e-5, rtol=1e-5)
    found = read(tmp_path / "adapter")
    assert (found.task, found.base, found.shape) == ("task", frozen_base.digest(tmp_path / "base"), SHAPE)
    assert torch.equal(found.values, mine.values)
    write(mine, tmp_path / "adapter", form, tmp_path / "base")  # over its own product
    assert all(str(tmp_path).encode() not in file.read_bytes() for file in (tmp_path / "adapter").iterdir())


@FAMILY
@pytest.mark.parametrize("projection", [False, True])
def test_we_read_what_peft_writes(family: str, projection: bool, tmp_path: Path) -> None:
    torch.manual_seed(5)
    how = PrefixTuningConfig(
        task_type="CAUSAL_LM", num_virtual_tokens=5, prefix_projection=projection, encoder_hidden_size=7
    )
    theirs = get_peft_model(base(family), how).eval()
    theirs.save_pretrained(str(tmp_path / "theirs"))
    found = read(tmp_path / "theirs")
    assert (found.task, found.base, found.shape) == ("theirs", "", SHAPE)
    text = ids(2, 7)
    expected = theirs(text, attention_mask=torch.ones_like(text)).logits
    torch.testing.assert_close(run(base(family), [found.values] * 2, text), expected, atol=1e-5, rtol=1e-5)


@FAMILY
@pytest.mark.parametrize("frozen", [0, 2, 5])
def test_cartridges_both_ways(family: str, frozen: int, tmp_path: Path) -> None:
    """From a cartridge that peft wrote to a course prefix, and back to one that peft loads."""
    torch.manual_seed(5)
    how = CartridgeConfig(task_type="CAUSAL_LM", num_virtual_tokens=5, num_frozen_tokens=frozen)
    theirs = get_peft_model(base(family), how).eval()
    theirs.save_pretrained(str(tmp_path / "theirs"))
    write(read(tmp_path / "theirs"), tmp_path / "ours.safetensors")
    found = read(tmp_path / "ours.safetensors")
    assert (found.task, found.shape, found.settings.get("num_frozen_tokens", 0)) == ("theirs", SHAPE, frozen)
    text = ids(2, 7)
    expected = theirs(text, attention_mask=torch.ones_like(text)).logits
    torch.testing.assert_close(run(base(family), [found.values] * 2, text), expected, atol=1e-5, rtol=1e-5)
    write(found, tmp_path / "again", "cartridge")
    again = PeftModel.from_pretrained(base(family), str(tmp_path / "again")).eval()
    assert torch.equal(again(text, attention_mask=torch.ones_like(text)).logits, expected)
    encoder = again.prompt_encoder["default"]
    assert isinstance(encoder.weight, torch.Tensor)
    assert torch.equal(encoder.weight, found.values) and encoder.num_frozen_tokens == frozen


def test_conversion_fills_in_the_base_and_checks_it(tmp_path: Path) -> None:
    for name, seed in (("base", 0), ("other", 1)):
        base("gpt2", seed=seed).save_pretrained(tmp_path / name)
    write(Prefix(prefix(5), "task"), tmp_path / "a.safetensors", base_folder=tmp_path / "base")
    found = read(tmp_path / "a.safetensors")
    digest = frozen_base.digest(tmp_path / "base")
    assert (found.base, found.shape) == (digest, SHAPE)
    with pytest.raises(CourseError, match=f"weights {digest[:12]}, the model's are"):
        write(found, tmp_path / "b.safetensors", base_folder=tmp_path / "other")
    with pytest.raises(CourseError, match=r"144 numbers per position, the model takes 192 \(3 layers × 4 heads × 8\)"):
        write(Prefix(prefix(5)[:, :144], "task"), tmp_path / "b", "peft", tmp_path / "base")
    with pytest.raises(UsageError, match="--base: not set"):
        write(Prefix(prefix(5), "task"), tmp_path / "b", "peft")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "base", "other"]


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("ran"),)


def cut(form: Form) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        write(some(), path, form)
        os.truncate(path, 2000)

    return make


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (partial(torch.save, torch.full((5, 192), float("nan"))), "960 of its 960 values are not finite"),
        (partial(torch.save, {"model": prefix(5)}), "holds a dict, expected one bare tensor"),
        (partial(torch.save, torch.zeros(5, 191)), r"a tensor \[5, 191\]"),
        (partial(torch.save, Hostile()), "asks for getattr, which could run code"),
        (cut("course"), "not a prefix, or cut short"),
        (cut("rinna"), "cut short"),
        (lambda path: save_file({"prompt_embeddings": prefix(5)}, path), "give the folder"),
        (lambda path: write(Prefix(prefix(5), "t", shape=Shape(3, 4, 4)), path), "192 numbers per position"),
        (lambda path: None, "no such file"),
    ],
)  # fmt: skip
def test_what_is_no_prefix_is_refused_in_one_line(
    make: Callable[[Path], object], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "some.file"
    make(path)
    with pytest.raises(CourseError, match=line) as caught:
        read(path)
    assert "\n" not in str(caught.value) and ("some.file" in str(caught.value) or "per position" in line)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"peft_type": "LORA"}, "a peft adapter of type LORA for CAUSAL_LM; expected PREFIX_TUNING"),
        ({"num_layers": "three"}, "not a prefix, or cut short"),
        (
            {"num_virtual_tokens": 6},
            "num_virtual_tokens 6 and num_frozen_tokens 0, adapter_model.safetensors has 5 rows",
        ),
        (
            {"num_frozen_tokens": 6},
            "num_virtual_tokens 5 and num_frozen_tokens 6, adapter_model.safetensors has 5 rows",
        ),
    ],
)
def test_peft_folders_of_something_else(change: dict[str, Any], line: str, tmp_path: Path) -> None:
    write(some(), tmp_path / "a", "cartridge")
    config = tmp_path / "a/adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(CourseError, match=line):
        read(tmp_path / "a")


def test_a_cartridge_cut_short(tmp_path: Path) -> None:
    write(some(), tmp_path / "a", "cartridge")
    os.truncate(tmp_path / "a/adapter_model.safetensors", 2000)
    with pytest.raises(CourseError, match="a: not a prefix, or cut short"):
        read(tmp_path / "a")
