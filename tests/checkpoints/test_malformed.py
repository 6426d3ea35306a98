"""Malformed files of each kind that a command reads: one line and a code, no traceback, no endless loop, nothing written."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from course_lib import cli
from course_lib.errors import CourseError
from course_lib.generation.prefix_cache import Shape
from course_lib.prefix import files
from course_lib.serving import ct2, export
from course_lib.serving.client import Client
from safetensors.torch import load_file, save_file

from tests.gptsan import bundle_writer
from tests.prefix import bases
from tests.pretrain import megatron_writer as writer

Damage = Callable[[Path], Any]
DEEP = "[" * 100_000


def values(name: str, **changes: Any) -> Damage:
    """Change values of a JSON object; None removes them."""

    def damage(folder: Path) -> None:
        content = json.loads((folder / name).read_text()) | changes
        (folder / name).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))

    return damage


def content(name: str, text: bytes | str) -> Damage:
    return lambda folder: (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def header(name: str, change: Callable[[dict[str, Any]], Any]) -> Damage:
    """Change the header of a safetensors file."""

    def damage(folder: Path) -> None:
        whole = (folder / name).read_bytes()
        size = struct.unpack("<Q", whole[:8])[0]
        tensors = json.loads(whole[8 : 8 + size])
        change(tensors)
        text = json.dumps(tensors).encode()
        (folder / name).write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + size :])

    return damage


def one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command, which fails with a line and code 1 or 2."""
    capsys.readouterr()
    assert cli._main(arguments) in (1, 2)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("course: ")]
    assert len(lines) == 1, lines
    return lines[0]


def set_all(tensors: dict[str, Any], key: str, value: Any) -> None:
    for name in tensors.keys() - {"__metadata__"}:
        tensors[name][key] = value


WEIGHTS = "model.safetensors"
MODELS: dict[str, Damage] = {
    "config: not JSON": content("config.json", "{"),
    "config: nested too deeply": content("config.json", DEEP),
    "config: a list": content("config.json", "[]"),
    "config: a text for a size": values("config.json", n_layer="many"),
    "config: layers": values("config.json", n_layer=10**9),
    "config: vocabulary": values("config.json", vocab_size=10**9),
    "config: inner size": values("config.json", n_inner=10**9),
    "generation_config: a text for an id": values("generation_config.json", eos_token_id="</s>"),
    "generation_config: not UTF-8": content("generation_config.json", b"\xff\xfe"),
    "tokenizer.json: empty": content("tokenizer.json", "{}"),
    "weights: cut short": lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-9]),
    "weights: header of 4 EB": content(WEIGHTS, struct.pack("<Q", 1 << 62) + b"{}"),
    "weights: integers": header(WEIGHTS, lambda tensors: set_all(tensors, "dtype", "I32")),
    "weights: overlapping": header(WEIGHTS, lambda tensors: set_all(tensors, "data_offsets", [0, 128])),
    "weights: a size above the file": header(WEIGHTS, lambda tensors: set_all(tensors, "shape", [10**12])),
    "pickle: text": lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin").write_text("x"),
}


@pytest.mark.parametrize("command", ["generate", "ft export", "gguf export"])
@pytest.mark.parametrize("kind", MODELS)
def test_models(kind: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bases.folder(tmp_path, "gpt2")
    MODELS[kind](folder)
    if command == "ft export" and kind == "tokenizer.json: empty":
        pytest.skip("ft export copies the tokenizer and does not read it")
    rest = ["早稲田"] if command == "generate" else ["-o", str(tmp_path / "out")]
    one_line([*command.split(), str(folder), *rest], capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("weight_map", [None, [], {}, {"a": 1}, {"a": "absent.safetensors"}, {"a": "../x.safetensors"}])
def test_indexes(weight_map: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bases.folder(tmp_path, "gpt2")
    (folder / WEIGHTS).rename(tmp_path / "x.safetensors")
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": weight_map}))
    one_line(["generate", str(folder), "早"], capsys)


PREFIXES: dict[str, Any] = {
    "a number for a digest": {"base": 1},
    "a list for the task": {"task": []},
    "a text for the settings": {"settings": "x"},
    "no shape": {"shape": {"layers": 3}},
}


@pytest.mark.parametrize("kind", PREFIXES)
def test_prefixes(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = files.Prefix(torch.zeros(2, 2 * 3 * 32), "t", "", Shape(3, 4, 8))
    file = tmp_path / "p.safetensors"
    files.write(prefix, file)
    about = {"task": "t", "base": "", "shape": None, "settings": {}} | PREFIXES[kind]
    save_file(load_file(file), file, {files.ABOUT: json.dumps(about)})
    said = one_line(["prefix", "convert", str(file), "-o", str(tmp_path / "out.pt")], capsys)
    assert "not a prefix" in said
    save_file(load_file(file), file, {files.ABOUT: '"x"'})
    one_line(["prefix", "convert", str(file), "-o", str(tmp_path / "out.pt")], capsys)


FASTER: dict[str, Damage] = {
    "layers": lambda folder: replaced(folder, "num_layer = 3", "num_layer = 1000000000"),
    "settings": values("conversion.json", not_in_the_format=-1),
    "a list for a divisor": values("conversion.json", biases_divided_by=[]),
    "a text for a number": values("conversion.json", not_in_the_format={"layer_norm_epsilon": "x"}),
    "a negative number": values("conversion.json", not_in_the_format={"layer_norm_epsilon": -1}),
    "an activation that is a list": values("conversion.json", not_in_the_format={"activation_function": []}),
}


def replaced(folder: Path, old: str, new: str) -> None:
    path = folder / "1-gpu/config.ini"
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize("kind", FASTER)
def test_fastertransformer(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export.export(bases.folder(tmp_path, "gpt2"), tmp_path / "ft")
    FASTER[kind](tmp_path / "ft")
    one_line(["ft", "import", str(tmp_path / "ft"), "-o", str(tmp_path / "out")], capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["1", "{}", '["a"', DEEP, b"\xff", "[1]", '["a"]'])
def test_ctranslate2(text: str | bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ct2.export(bases.folder(tmp_path, "gpt2"), tmp_path / "ct2")
    # An id that no token has ends no text.
    content("generation_config.json", '{"eos_token_id": -1}')(tmp_path / "ct2")
    assert cli._main(["ct2", "generate", str(tmp_path / "ct2"), "早"]) == 0
    content("vocabulary.json", text)(tmp_path / "ct2")
    one_line(["ct2", "generate", str(tmp_path / "ct2"), "早"], capsys)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_layers", 10**9), ("num_layers", None), ("num_attention_heads", 0), ("hidden_dropout", "x"),
        ("tensor_model_parallel_size", 10**9), ("make_vocab_size_divisible_by", []),
    ],
)  # fmt: skip
def test_megatron_arguments(name: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = writer.pipeline(writer.model(), tmp_path / "run", **{name: value})
    one_line(["convert", "megatron", str(source), "-o", str(tmp_path / "out")], capsys)


@pytest.mark.parametrize("text", [b"\xff\xfe", b"", b"../..", b"a\0b", b"a" * 5000, b"/etc"])
def test_megatron_latest(text: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = writer.pipeline(writer.model(), tmp_path / "run").parent
    (run / "latest").write_bytes(text)
    assert "latest: names" in one_line(["convert", "megatron", str(run), "-o", str(tmp_path / "out")], capsys)


@pytest.mark.parametrize("at", [0, 40, -60, -8, -48])
def test_tensorflow(at: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = bundle_writer.write_original(tmp_path / "tf", bundle_writer.random_variables())
    index = next(source.glob("*.index"))
    whole = bytearray(index.read_bytes())
    whole[at] ^= 0x84
    index.write_bytes(whole)
    one_line(["gptsan", "import-tf", str(source), "-o", str(tmp_path / "out")], capsys)


@pytest.mark.parametrize(
    "answer",
    [
        [], 1, None, {}, {"outputs": 1}, {"outputs": [{"name": "x", "data": [], "shape": []}]}, {"outputs": [[]]},
        {"outputs": [{"name": "output_ids", "data": [1], "shape": [2, 3]}]},
        {"outputs": [{"name": "output_ids", "data": [-1], "shape": [1]}]},
        {"outputs": [{"name": "output_ids", "data": ["x"], "shape": [1]}]},
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [200, 500])
def test_answers_of_servers(answer: Any, status: int) -> None:
    client = Client("127.0.0.1:1")
    client._http = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(status, json=answer)))
    with pytest.raises(CourseError, match="does not answer as a Triton server: ") as error:
        client.infer({"input_ids": [[1]], "input_lengths": [[1]]})
    assert "\n" not in str(error.value)
