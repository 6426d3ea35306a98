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
from course_lib.evaluation import bits, jblimp
from course_lib.evaluation.trigram import Trigram
from course_lib.generation.prefix_cache import Shape
from course_lib.gptsan.swe import SPECIALS
from course_lib.gptsan.tokenizer import load_tokenizer
from course_lib.japanese import normalize
from course_lib.models import frozen_base
from course_lib.prefix.files import Prefix, write
from course_lib.world.pairs import DISTANCES

from tests.gptsan import handmade
from tests.gptsan.test_generate import LETTERS, build
from tests.prefix import bases
from tests.pretrain.models import OTHER, SENTENCE, memorized

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


def test_bits_beside_unigram_and_trigram_and_copied_spans(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "memorized").mkdir()
    folders = [memorized(tmp_path / "memorized"), folder / "gpt_neox" / "tokenizer"]
    held_out, training = tmp_path / "held-out.txt", tmp_path / "training.txt"
    # The model knows how SENTENCE goes on; the held-out document goes on otherwise.
    held_out.write_text(f"{SENTENCE[:5]}{OTHER}\n\n雨\n", encoding="utf8")
    training.write_text(f"{OTHER}\n\n{SENTENCE}\n", encoding="utf8")
    code, out, error = course(
        capsys, *folders, "--data", held_out, "--training", training, "--prompt", 5, "--top-p", 0.5, "--top-p", 1,
        "--tokens", 20, "-o", tmp_path / "scores.json",
    )  # fmt: skip
    assert code == 0, error
    content = orjson.loads((tmp_path / "scores.json").read_bytes())["models"]
    assert [model["model"] for model in content][2:] == ["character unigram", "character trigram", "held-out text"]
    costs = [model["bits"] and model["bits"]["bits_per_character"] for model in content]
    documents = [f"{SENTENCE[:5]}{OTHER}", "雨"]
    assert costs[3] == pytest.approx(bits.bits(Trigram([OTHER, SENTENCE], normalize), documents).bits_per_character)
    assert costs[3] < costs[2] and costs[4] is None
    assert {*content[0]["copies"]} == {*content[1]["copies"]} == {"top-p 0.5", "top-p 1"}
    known = content[0]["copies"]["top-p 0.5"]
    assert known["texts"] == 1 and known["longest"] == normalize(SENTENCE[5:])
    assert known["copied"] == known["windows"] and known["copied"]["20"] == known["characters"] - 19
    human = content[4]["copies"][""]
    assert human["texts"] == 1 and human["longest"] == ""
    assert f"{content[0]['model']} top-p 0.5: {known['longest']}" in out.splitlines()


def test_gptsan_writes_from_all_tokens(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, model = folder / "texts" / "a.txt", folder / "gptsan" / "tokenizer"
    wanted = [model, "--data", texts, "--training", texts, "--prompt", 2, "--tokens", 3]
    code, out, error = course(capsys, *wanted)
    assert code == 0, error
    assert [line.split("  ")[1] for line in out.splitlines() if line.startswith(str(model))][-1].strip() == "top-p 1"
    assert course(capsys, *wanted, "--top-p", 0.9)[0] == 2


def test_jblimp_is_read_from_its_folder_and_shown_beside_its_authors(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The numbers of pairs are those of the file, its sentences are ours."""
    rows = [
        {
            "ID": number,
            "good_sentence": f"{number}を食べた。",
            "bad_sentence": f"{number}が食べた。",
            "phenomenon": name,
        }
        for name, count in jblimp.PAIRS.items()
        if name != "all"
        for number in range(count)
    ]
    file = tmp_path / "JBLiMP" / jblimp.FILE
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf8")
    texts, model = folder / "texts" / "a.txt", folder / "gpt2" / "tokenizer"
    code, out, error = course(capsys, model, "--minimal-pairs", tmp_path / "JBLiMP", "--trigram", texts)
    assert code == 0, error
    lines = out.splitlines()
    assert lines[0].split()[-5:] == ["Trans-LG", "Trans-SM", "LSTM", "5-gram", "humans"]
    shown = {line.split("  ")[0]: line.split()[-5:] for line in lines[1:13]}
    assert shown["all"] == ["77.95", "76.54", "75.73", "74.02", "90.90"]
    assert shown["binding"] == ["58.97", "46.15", "41.03", "53.85", "82.05"]
    assert "sum of the log probabilities" in lines[14] and "SLOR" in lines[14]
    assert course(capsys, model, "--minimal-pairs", file, "--trigram", texts)[1] == out
    # Another number of pairs, such as that of the raw file, is not what the authors measured.
    file.write_text(json.dumps(rows[0]), encoding="utf8")
    assert "Trans-LG" not in course(capsys, model, "--minimal-pairs", file, "--trigram", texts)[1]


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
        (["gpt2/tokenizer", "--minimal-pairs", "texts"], 1, "validated_minimal_pairs.jsonl: not found; allowed: a JSONL file"),
        (["gpt2/tokenizer", "--minimal-pairs", "grammar", "--training", "texts"], 2, "--training: needs --data"),
        (["gpt2/tokenizer", "--data", "texts", "--training", "none.txt"], 1, "none.txt"),
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
