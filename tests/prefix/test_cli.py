"""The commands that need no training, as a user calls them."""

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch
from course_lib.command_line import command_table
from course_lib.errors import CourseError
from course_lib.models.frozen_base import digest
from course_lib.prefix.files import Prefix, read, write

from tests.generation.test_prefix_cache import prefix
from tests.prefix import bases

GREEDY = ["--set", "strategy=greedy", "--set", "max_new_tokens=4"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bases.folder(tmp_path_factory.mktemp("base"), "gpt_neox")


def course(*words: object) -> str:
    with redirect_stdout(io.StringIO()) as output:
        command_table.app(["prefix", *map(str, words)], standalone_mode=False)
    return output.getvalue()


def test_generate_side_by_side(model: Path, tmp_path: Path) -> None:
    files = [tmp_path / "a.safetensors", tmp_path / "b.task0.weight"]
    write(Prefix(prefix(3), "smile"), files[0], base_folder=model)
    write(Prefix(prefix(7, 1), "plain"), files[1], "rinna")
    shown = course("generate", model, "--prefix", files[0], "--prefix", files[1], "牛丼", "勉強", *GREEDY).splitlines()
    heads = [line.split("]")[0] for line in shown if line.startswith("[")]
    assert heads == ["[no prefix", "[smile", "[b"] * 2
    assert course("generate", model, "牛丼", *GREEDY).startswith("牛丼")


def test_convert_through_all_forms(model: Path, tmp_path: Path) -> None:
    start = tmp_path / "smile.task0.weight"
    torch.save(prefix(5).half(), start)
    course("convert", start, "-o", tmp_path / "a.safetensors", "--base", model, "--task", "smileys")
    course("convert", tmp_path / "a.safetensors", "-o", tmp_path / "b", "--form", "peft")
    course("convert", tmp_path / "b", "-o", tmp_path / "d", "--form", "cartridge")
    said = course("convert", tmp_path / "d", "-o", tmp_path / "c.weight", "--form", "rinna")
    assert said == f"smileys: 5 positions of 192 numbers, rinna form → {tmp_path / 'c.weight'}\n"
    assert torch.equal(torch.load(tmp_path / "c.weight", weights_only=True), prefix(5).half().float())
    assert (read(tmp_path / "b").task, read(tmp_path / "b").base) == ("smileys", digest(model))
    with pytest.raises(Exception, match="'gguf' is not one of 'course', 'rinna', 'peft', 'cartridge'"):
        course("convert", start, "-o", tmp_path / "e", "--form", "gguf")
    with pytest.raises(CourseError, match="is the input "):
        course("convert", start, "-o", start)
