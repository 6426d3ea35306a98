"""Model folders of strangers: every command that reads one takes what older transformers left, and refuses the rest in one line."""

import importlib.util
import json
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from course_lib import cli
from course_lib.checkpoints import model_folder
from course_lib.errors import CourseError
from course_lib.models.frozen_base import digest
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.run import PrefixRun
from safetensors.torch import load_file, save_file

from tests.prefix import bases

GREEDY = ("--set", "strategy=greedy", "--set", "max_new_tokens=3")
READERS = ("generate", "prefix generate", "prefix train", "ct2 export")  # these read settings, tokenizer and weights
COMMANDS = (*READERS, "prefix convert", "ft export")  # those read the weights
ALL = (*COMMANDS, "memory")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {family: bases.folder(tmp_path_factory.mktemp(family), family) for family in bases.FAMILIES}


@pytest.fixture(params=bases.FAMILIES)
def folder(request: pytest.FixtureRequest, folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders[request.param], tmp_path / "model"))


@pytest.fixture
def gpt2(folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders["gpt2"], tmp_path / "model"))


def use(command: str, model: Path, folder: Path) -> int:
    """The exit code of a command on a model folder; `prefix train` as far as its checks."""
    prefix = folder / "p.weight"
    torch.save(torch.ones(3, 192), prefix)
    settings = {"task_name": "x", "model": {"base": str(model), "length": 3}, "data": {"form": "lines", "input": str(folder / "in.jsonl"), "dev_size": 1}}  # fmt: skip
    (folder / "run.yaml").write_text(json.dumps(settings))
    (folder / "in.jsonl").write_text('{"text": "牛丼を食べた。"}\n' * 3, encoding="utf8")
    words: dict[str, tuple[Any, ...]] = {
        "generate": (model, "早稲田", *GREEDY),
        "prefix generate": (model, "早稲田", "--prefix", prefix, *GREEDY),
        "prefix convert": (prefix, "-o", folder / "p.safetensors", "--base", model),
        "ft export": (model, "-o", folder / "ft"),
        "ct2 export": (model, "-o", folder / "ct2"),
        "memory": ("-c", folder / "run.yaml"),
    }
    if command != "prefix train":
        return cli._main([*command.split(), *map(str, words[command])])
    from course_lib.settings import config

    try:
        task = PrefixRun(config.load(PrefixConfig, folder / "run.yaml"))
        task.check()
        task.identity()
    except CourseError as error:
        return cli._report(str(error), error.exit_code)
    return 0


def older(folder: Path) -> Path:
    """What transformers of 2021 to 2023 stored beside the weights: masks as booleans, their fill value, rotary frequencies."""
    weights = load_file(folder / "model.safetensors")
    for layer in range(3):
        neox = f"gpt_neox.layers.{layer}.attention" if "gpt_neox.embed_in.weight" in weights else ""
        name = neox or f"transformer.h.{layer}.attn"
        weights[f"{name}.bias"] = torch.ones(1, 1, 48, 48).tril().bool()
        weights[f"{name}.masked_bias"] = torch.tensor(-1e9)
        if neox:
            weights[f"{name}.rotary_emb.inv_freq"] = torch.ones(1)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("command", ALL)
def test_leftovers_of_older_versions_are_no_weights(folder: Path, tmp_path: Path, command: str) -> None:
    assert use(command, older(folder), tmp_path) == 0


@pytest.fixture
def refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str, Path], str]:
    """The one line with which a command refuses a model folder."""

    def line(command: str, model: Path) -> str:
        assert use(command, model, tmp_path) == 1
        said = capsys.readouterr().err.strip()
        assert "\n" not in said and str(model) in said
        return said

    return line


Refusal = Callable[[str, Path], str]


@pytest.mark.parametrize("command", ["generate", "prefix train"])
def test_a_folder_without_a_tokenizer_is_named(gpt2: Path, refusal: Refusal, command: str) -> None:
    (gpt2 / "tokenizer.json").unlink()
    (gpt2 / "preparation.json").unlink()
    assert "holds no tokenizer" in refusal(command, gpt2)


@pytest.mark.parametrize("command", ["prefix train", "ct2 export"])
@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_malformed_settings_are_one_line(gpt2: Path, refusal: Refusal, command: str, file: str) -> None:
    for content in (b"[1]", b"", b"\xff\xfe{", b"[" * 100_000):
        (gpt2 / file).write_bytes(content)
        assert f"{gpt2 / file}: " in refusal(command, gpt2)


@pytest.mark.parametrize(("key", "value"), [("n_layer", -1), ("n_head", "4"), ("n_head", 3), ("model_type", 7)])
@pytest.mark.parametrize("command", ["prefix generate", "ft export"])
def test_values_that_cannot_be_are_one_line(gpt2: Path, refusal: Refusal, command: str, key: str, value: Any) -> None:
    path = gpt2 / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    refusal(command, gpt2)


class Evil:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch ran",)


@pytest.mark.parametrize("command", ["generate", "ft export"])
def test_a_pickle_that_is_not_loaded_is_one_line_with_a_way_out(gpt2: Path, refusal: Refusal, command: str) -> None:
    pickle, weights = gpt2 / "pytorch_model.bin", load_file(gpt2 / "model.safetensors")
    (gpt2 / "model.safetensors").unlink()
    assert "holds no weights" in refusal(command, gpt2)
    torch.save(weights | {"extra": Evil()}, pickle)
    said = refusal(command, gpt2)
    assert f"{pickle}: " in said and "posix.system" in said and "get the model as model.safetensors" in said
    # "ft export" reads the tensors and leaves the rest
    torch.save(weights | {"extra": Namespace(a=1)}, pickle)
    if command == "generate":
        assert "that transformers does not load" in refusal(command, gpt2)


def test_weights_that_are_missing_or_of_another_shape_are_never_drawn_at_random(gpt2: Path) -> None:
    weights = load_file(gpt2 / "model.safetensors")
    norm = weights.pop("transformer.ln_f.weight")
    save_file(weights, gpt2 / "model.safetensors", {"format": "pt"})
    with pytest.raises(CourseError, match="the weights lack transformer.ln_f.weight"):
        model_folder.load_model(gpt2)
    save_file(weights | {"transformer.ln_f.weight": norm[1:].clone()}, gpt2 / "model.safetensors", {"format": "pt"})
    with pytest.raises(CourseError, match=r"transformer.ln_f.weight has shape \(31,\), config.json says \(32,\)"):
        model_folder.load_model(gpt2)


@pytest.mark.parametrize("command", ["generate", "ct2 export", "ft export"])
def test_layers_that_the_config_does_not_name_are_an_error(folder: Path, refusal: Refusal, command: str) -> None:
    content = json.loads((folder / "config.json").read_text())
    for key in ("n_layer", "num_hidden_layers"):
        content |= {key: content[key] - 1} if key in content else {}
    (folder / "config.json").write_text(json.dumps(content))
    assert ".2." in refusal(command, folder)


@pytest.mark.parametrize("command", ["generate", "ct2 export", "ft export"])
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_weights_that_are_not_finite_are_an_error(gpt2: Path, refusal: Refusal, command: str, value: float) -> None:
    weights = load_file(gpt2 / "model.safetensors")
    name = sorted(weights)[3]
    weights[name].view(-1)[1] = value
    save_file(weights, gpt2 / "model.safetensors", {"format": "pt"})
    said = refusal(command, gpt2)
    assert name in said and "not finite" in said


def test_an_index_that_names_no_file_or_one_elsewhere(gpt2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (gpt2 / "model.safetensors").rename(gpt2.parent / "outside.safetensors")
    index = gpt2 / "model.safetensors.index.json"
    for content, message in (
        ('{"weight_map": {"a": 3}}', "`weight_map` names none"),
        ('{"weight_map": {"a": "../outside.safetensors"}}', "model/outside.safetensors: no such file"),
    ):
        index.write_text(content)
        with pytest.raises(CourseError, match=message):
            digest(gpt2)


def test_a_model_is_saved_without_the_import_of_deepspeed(
    gpt2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deepspeed = ModuleType("deepspeed")
    deepspeed.__spec__ = importlib.util.find_spec("deepspeed")
    # Nothing can be imported from it.
    monkeypatch.setitem(sys.modules, "deepspeed", deepspeed)
    model = model_folder.load_model(gpt2)
    with pytest.raises(ImportError):
        model.save_pretrained(tmp_path / "direct")
    model_folder.save_model(model, tmp_path / "saved")
    assert load_file(tmp_path / "saved/model.safetensors").keys() == load_file(gpt2 / "model.safetensors").keys()
