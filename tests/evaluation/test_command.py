"""`course evaluate`: every family and a prefix side by side, JSON, and one line for every mistake."""

import json
import lzma
import shutil
from pathlib import Path

import orjson
import pytest
import torch
from course_lib import cli
from course_lib.command_line.evaluate import open_model
from course_lib.evaluation import bits
from course_lib.generation.prefix_cache import Shape
from course_lib.gptsan.swe import SPECIALS
from course_lib.gptsan.tokenizer import load_tokenizer
from course_lib.models import frozen_base
from course_lib.prefix.files import Prefix, write
from course_lib.world.pairs import DISTANCES

from tests.gptsan import handmade
from tests.gptsan.test_generate import LETTERS, build
from tests.prefix import bases
from tests.pretrain.models import OTHER, SENTENCE

PAIRS = [
    {"phenomenon": "particle", "good": "大学で勉強している。", "bad": "大学が勉強している。"},
    {"phenomenon": "particle", "good": "牛丼を食べた。", "bad": "牛丼が食べた。"},
    {"phenomenon": "tense", "good": "昨日食べた。", "bad": "昨日食べる。"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one model of each family, a prefix, documents and pairs."""
    models = tmp_path_factory.mktemp("models")
    for family in bases.FAMILIES:
        (models / family).mkdir()
        bases.folder(models / family, family)
    words = load_tokenizer(handmade.write(models / "words", [*LETTERS, *SPECIALS]))
    build(words).save_pretrained(models / "gptsan" / "tokenizer")
    words.save_pretrained(models / "gptsan" / "tokenizer")
    base = models / "gpt_neox" / "tokenizer"
    shape = Shape.of(frozen_base.read_config(base))
    values = torch.randn(4, shape.width, generator=torch.Generator().manual_seed(0))
    write(Prefix(values, "task", shape=shape), models / "task.safetensors", base_folder=base)
    (models / "texts").mkdir()
    (models / "texts" / "a.txt").write_text(f"{SENTENCE}\n\n{OTHER}{SENTENCE}\n", encoding="utf8")
    with lzma.open(models / "texts" / "b.jsonl.xz", "wt", encoding="utf8") as file:
        file.write(json.dumps({"text": "犬が吠えた。\n外は雨だ！"}) + "\n")
    (models / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS), encoding="utf8")
    return models


def course(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["evaluate", *map(str, arguments)])
    return int(str(ended.value.code)), *capsys.readouterr()


def test_three_families_side_by_side(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = [folder / name / "tokenizer" for name in ("gpt2", "gpt_neox", "gptsan")]
    texts = folder / "texts"
    code, out, error = course(
        capsys, *models, "--data", texts / "a.txt", "--data", texts / "b.jsonl.xz", "--minimal-pairs", folder / "pairs.jsonl",
        "--trigram", texts / "a.txt", "-o", tmp_path / "scores.json", "--set", "batch_size=2",
    )  # fmt: skip
    assert code == 0, error
    assert out.startswith("3 documents, ") and "chance: 50 %" in out
    names = ["gpt2", "gpt_neox", "gptsan", "character trigram"]
    assert [line.split("  ")[0] for line in out.splitlines()[2:6]] == names
    content = orjson.loads((tmp_path / "scores.json").read_bytes())
    assert [model["model"] for model in content["models"]] == names
    documents = [f"{SENTENCE}", f"{OTHER}{SENTENCE}", "犬が吠えた。\n外は雨だ！"]
    for model, stored in zip(models, content["models"], strict=False):
        found = bits.bits(open_model(model), documents)
        assert stored["bits"]["bits_per_character"] == pytest.approx(found.bits_per_character, rel=1e-6)
        assert stored["bits"]["characters"] == sum(map(len, documents)) - 1
        assert stored["minimal_pairs"]["all"]["pairs"] == 3 and stored["minimal_pairs"]["particle"]["pairs"] == 2


def test_a_folder_of_documents_and_a_prefix(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder / "gpt_neox" / "tokenizer"
    code, out, error = course(capsys, model, "--data", folder / "texts", "--prefix", folder / "task.safetensors")
    assert code == 0, error
    without, prefixed = out.splitlines()[2:]
    assert without.startswith(f"{model} ") and prefixed.startswith(f"{model} + task ")
    assert without.split()[-5:] != prefixed.split()[-5:]


def test_the_spout_of_gptsan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder / "gptsan" / "tokenizer"
    tables = [course(capsys, model, "--data", folder / "texts", "--spout", spout)[1] for spout in ("none", "1")]
    assert tables[0] != tables[1] and all("gptsan" in table for table in tables)


def test_class_0_is_a_class_in_python_too(folder: Path) -> None:
    found = {
        spout: bits.bits(open_model(folder / "gptsan" / "tokenizer", spout=spout), ["雨が降る。"]).bits
        for spout in (None, "none", 0, "0", 1)
    }
    assert found[None] == found["none"] and found[0] == found["0"]
    assert found[None] != found[0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gpt2/tokenizer"], 2, "--data, --minimal-pairs, --tasks: none is set"),
        (["gptsan/tokenizer", "--data", "texts", "--prefix", "task.safetensors"], 2, "a GPTSAN model; allowed: GPT-2 and GPT-NeoX"),
        (["gpt2/tokenizer", "--data", "texts", "--set", "window=1000"], 2, "window: 1000 is not allowed: the model has room for 48"),
        (["gpt2/tokenizer", "--data", "bytes.txt"], 1, "bytes.txt, line 2: not UTF-8 at byte 3"),
        (["no-tokenizer", "--data", "texts"], 1, "no-tokenizer: holds no tokenizer"),
        (["bert", "--data", "texts"], 1, "bert: a bert model; allowed: gpt2, gpt_neox, gptsan-japanese"),
    ],
)  # fmt: skip
def test_one_line_for_every_mistake(
    folder: Path,
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "bytes.txt").write_bytes("雨\n雨".encode() + b"\xff\n")
    shutil.copytree(folder / "gpt2" / "tokenizer", tmp_path / "no-tokenizer", ignore=lambda *_: ["tokenizer.json"])
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text('{"model_type": "bert"}')
    monkeypatch.chdir(tmp_path)
    found, out, error = course(capsys, *arguments, "-o", "scores.json")
    assert (found, out) == (code, "") and message in error
    assert len([line for line in error.splitlines() if not line.startswith("settings: ")]) == 1
    assert not (tmp_path / "scores.json").exists()


def test_pairs_of_the_world(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = folder / "texts" / "a.txt"
    code, out, error = course(capsys, folder / "gptsan" / "tokenizer", "--minimal-pairs", "world", "--trigram", texts)
    assert code == 0, error
    assert [line.rsplit(maxsplit=5)[0] for line in out.splitlines()[1:6]] == [*DISTANCES, "all"]
