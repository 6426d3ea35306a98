"""The commands of the chapters one after the other, as docs/commands.md shows them: each on the product of the one before."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from course_lib import cli
from course_lib.workspace import products as workspace

Course = Callable[[str], str]
COMMANDS = Path(__file__).parents[1] / "docs/commands.md"
LINES = "江戸 時代 の 学校 。\n学生 が 大学 で 学ぶ 。\n\n雨 が 降る 。\n\n" * 200
SHORT = "--set launch.ranks=1 --set engine.eval_freq=0 --set engine.logging_freq=1 --set engine.tracking=[] "
SMALL = "--set model.vocab_size=280 --set model.num_layers=1 --set model.hidden_size=32 --set data.tokenizer=words "


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Course:
    """A function that runs the words after `course` in an empty folder and returns what they print."""
    monkeypatch.chdir(tmp_path)

    def run(words: str) -> str:
        capsys.readouterr()
        code = cli._main(shlex.split(words))
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return run


@pytest.fixture
def words(course: Course) -> None:
    """A tokenizer, and the tokens of the lines that it was trained on."""
    Path("lines.txt").write_text(LINES, encoding="utf8")
    course("tokenizer bpe lines.txt -o words --vocab-size 280")
    said = course("tokenize lines.txt --tokenizer words -o tokens --append-eod")
    assert "400 documents" in said and "tokens.bin, tokens.idx" in said


def test_from_raw_dumps_to_tokenizers(course: Course) -> None:
    dump, crawl = workspace.data("jawiki-sample.xml.bz2"), workspace.data("webtext-sample.txt.xz")
    assert "kept 348 of 376" in course(f"corpus wikipedia {dump} -o wiki.jsonl --workers 2")
    assert Path("wiki.jsonl.report.json").exists()
    course(f"corpus webtext {crawl} -o web.jsonl --set filters.min_chars=200")
    report = json.loads(Path("web.jsonl.report.json").read_bytes())
    assert report["limits"]["too_short"] == "< 200"
    assert report["documents_out"] == len(Path("web.jsonl").read_bytes().splitlines())
    works = workspace.data("aozora-sample/cards/900001/files/1_ruby_1/1_ruby_1.txt").parents[4]
    Path("list.json").write_text('{"authors": ["水瀬はる"]}', encoding="utf8")
    assert "kept 3 of 7" in course(f"corpus aozora {works} -o aozora --held-out list.json --piece-characters 200")
    assert len(Path("aozora/held-out.jsonl").read_bytes().splitlines()) == 2
    assert "words in" in course("segment wiki.jsonl -o lines.txt --segmenter mecab --workers 2")
    course("segment web.jsonl -o plain.txt --no-mark-spaces")
    assert "␣" in Path("lines.txt").read_text(encoding="utf8")
    assert "␣" not in Path("plain.txt").read_text(encoding="utf8")
    course("tokenizer bpe lines.txt plain.txt -o bpe --vocab-size 5000")
    assert Path("bpe/tokenizer.json").exists()
    Path("unigram.yaml").write_text("vocab_size: 5000\n")
    assert "4500 entries" in course("tokenizer unigram wiki.jsonl -o unigram -c unigram.yaml --set vocab_size=4500")
    assert {"tokenizer.model", "tokenizer.json"} <= {path.name for path in Path("unigram").iterdir()}


def test_the_pages_commands_run(course: Course) -> None:
    Path("downloads").mkdir()
    dump = Path("downloads/jawiki-20261101-pages-articles-multistream.xml.bz2")
    dump.symlink_to(workspace.data("jawiki-sample.xml.bz2"))
    Path("ja.txt.xz").symlink_to(workspace.data("webtext-sample.txt.xz"))
    Path("data").symlink_to(workspace.data("README.md").parent)
    Path("aozorabunko_text").symlink_to("data/aozora-sample")
    Path("list.json").write_text('{"authors": ["水瀬はる"]}', encoding="utf8")
    lines = [line.split("#")[0].split()[1:] for line in COMMANDS.read_text(encoding="utf8").split("\n")
             if line.startswith("    course ")]  # fmt: skip
    commands = [line for line in lines if line[0] in ("corpus", "segment", "tokenizer") and line[1] != "download"]
    assert len(commands) >= 4
    for command in commands:  # the sample supports fewer entries than a real corpus
        course(" ".join(command).replace("32000", "5000"))
    assert {"wiki.jsonl", "web.jsonl", "wiki.txt", "tokenizer"} <= {path.name for path in Path().iterdir()}


@pytest.mark.usefixtures("words")
def test_from_lines_to_a_model_that_generates(course: Course) -> None:
    assert "800 documents" in course("tokens tokens tokens -o both")
    assert json.loads(course("tokens both --json"))[0]["explanation"] == ""
    assert "fits" in course("memory -c gpt2-125m.yaml --gpus 4")
    said = course(f"pretrain -c gpt2-tiny.yaml -o run --set data.input=[both] --set engine.max_steps=4 {SHORT}{SMALL}")
    assert "global step 4" in said and said.endswith("run/model\n")
    assert "step 4" in course("export run -o model")
    said = course("generate model 学生が 雨が --max-new-tokens 5 --num-return-sequences 2 --seed 3 --json")
    first, second = json.loads(said)
    assert (first["prompt"], second["prompt"]) == ("学生が", "雨が")
    assert len(first["texts"]) == 2 and all(text.startswith("雨が") for text in second["texts"])


@pytest.mark.rehearse
def test_from_texts_with_classes_to_a_gptsan_that_writes(course: Course) -> None:
    listed = workspace.data("classified/list.csv")
    texts = " ".join(map(str, sorted(listed.parent.glob("*/0*.txt"))))
    assert "entries 600" in course(f"gptsan vocabulary {texts} -o words --size 600")
    said = course(f"gptsan encode {listed} --tokenizer words -o examples --num-context 64 --d-spout 4 --workers 2")
    assert "documents 192" in said and "classes 4" in said
    shape = (
        "{vocab_size: 600, max_position_embeddings: 80, d_model: 32, d_ff: 64, d_ext: 64, d_spout: 4, "
        "num_switch_layers: 1, num_heads: 2, num_experts: 2}"
    )
    new = f"--set data.input=examples --set engine.max_steps=2 {SHORT}"
    said = course(
        f"gptsan train -c gptsan-tiny.yaml -o base {new} --set data.tokenizer=words --set 'model.shape={shape}'"
    )
    assert "global step 2" in said and said.endswith("base/model\n")
    assert "layers 3" in course("gptsan add-extra-stage base/model -o stage --layers 2")
    assert "fits" in course("memory -c stage/train.yaml --set data.input=examples")
    frozen = "--set model.checkpoint=stage --set model.ignore=stage/ignore-params.json"
    assert "frozen" in course(f"gptsan train -c gptsan-tiny-extra.yaml -o run {new} {frozen}")
    assert "step 2" in course("export run -o model")
    options = "--spout 1 --top-k 5 --num-generate 2 --seed 3 --max-new-tokens 8"
    assert course(f"gptsan generate model 明日は {options}").count("明日は") == 2
    assert course("gptsan generate model '' --max-new-tokens 3")


@pytest.mark.usefixtures("words")
@pytest.mark.rehearse
def test_from_a_frozen_base_to_a_served_prefix(course: Course) -> None:
    new = f"--set engine.max_steps=2 {SHORT}"
    said = course(f"pretrain -c gpt2-tiny.yaml -o base --set data.input=[tokens] {new}{SMALL}")
    assert "step 2" in said and said.endswith("base/model\n")
    Path("task.jsonl").write_text('{"prompt": "雨が降りました。", "target": "雨が降った。"}\n' * 40, encoding="utf8")
    task = (
        "--set data.input=task.jsonl --set data.dev_size=4 --set model.base=base/model --set model.warm_start_steps=2"
    )
    said = course(f"prefix train -c prefix-tiny.yaml -o run {new}{task} --set optimizer.lr.warmup_steps=1")
    assert "global step 2" in said
    assert "plain" in course("export run -o plain.safetensors")
    assert "peft form" in course("prefix convert plain.safetensors -o peft --form peft --base base/model")
    said = course("prefix generate base/model 雨が --prefix peft --max-new-tokens 3")
    assert said.startswith("[no prefix] 雨が") and "[plain] 雨が" in said
    assert "fits" in course("memory -c prefix-neox-3.6b.yaml")
    said = course("ft export base/model -o served --tensor-parallel 2 --prefix plain.safetensors --prefix none=")
    assert "tasks plain, none" in said
    assert "2-gpu" in course("ft inspect served --values")
    course("serve served -o repository --backend fastertransformer")
    assert 'backend: "fastertransformer"' in Path("repository/fastertransformer/config.pbtxt").read_text()
    assert "int8" in course("ct2 export base/model -o ct2 --quantization int8")
    assert "雨が" in course("ct2 generate ct2 雨が --max-new-tokens 3")
