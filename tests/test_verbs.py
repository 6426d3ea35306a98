"""The verbs of the chapters one after the other, as docs/commands.md shows them: each on the product of the one before."""

from pathlib import Path

import orjson
import pytest
from course_lib import cli
from course_lib.workspace import products as workspace


def course(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    return out


def test_from_raw_dumps_to_tokenizers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wiki, web, lines, plain = (
        tmp_path / "wiki.jsonl",
        tmp_path / "web.jsonl",
        tmp_path / "lines.txt",
        tmp_path / "plain.txt",
    )
    said = course(capsys, "corpus", "wikipedia", workspace.data("jawiki-sample.xml.bz2"), "-o", wiki, "--workers", 2)
    assert "kept 348 of 376" in said and (tmp_path / "wiki.jsonl.report.json").exists()
    said = course(
        capsys,
        "corpus",
        "webtext",
        workspace.data("webtext-sample.txt.xz"),
        "-o",
        web,
        "--set",
        "filters.min_chars=200",
    )
    report = orjson.loads((tmp_path / "web.jsonl.report.json").read_bytes())
    assert report["limits"]["too_short"] == "< 200" and report["documents_out"] == len(web.read_bytes().splitlines())
    assert "words in" in course(capsys, "segment", wiki, "-o", lines, "--segmenter", "mecab", "--workers", 2)
    course(capsys, "segment", web, "-o", plain, "--set", "mark_spaces=false")
    assert "␣" in lines.read_text(encoding="utf8") and "␣" not in plain.read_text(encoding="utf8")
    course(capsys, "tokenizer", "bpe", lines, plain, "-o", tmp_path / "bpe", "--set", "vocab_size=5000")
    assert (tmp_path / "bpe" / "tokenizer.json").exists()


def test_unigram_from_a_yaml_that_names_input_and_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    course(capsys, "corpus", "wikipedia", workspace.data("jawiki-sample.xml.bz2"), "-o", tmp_path / "wiki.jsonl")
    config = tmp_path / "unigram.yaml"
    config.write_text(
        f"input: {tmp_path / 'wiki.jsonl'}\noutput_dir: {tmp_path / 'out'}\nvocab_size: 5000\n", encoding="utf8"
    )
    assert "4500 entries" in course(capsys, "tokenizer", "unigram", "-c", config, "--set", "vocab_size=4500")
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "tokenizer.model",
        "tokenizer.vocab",
        "tokenizer.json",
    }


def test_unigram_without_input_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["tokenizer", "unigram"])
    assert ended.value.code == 2 and capsys.readouterr().err.startswith("course: input, output_dir:")


def test_a_profile_name_as_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.txt").write_text("雨 が 降る 。\n", encoding="utf8")
    with pytest.raises(SystemExit):
        cli.main(["tokenizer", "bpe", str(tmp_path / "lines.txt"), "-o", str(tmp_path / "out"), "-c", "xl.yaml"])
    assert "vocab_size: 50000 is more than" in capsys.readouterr().err


def test_output_that_would_cost_something_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "雨。"}\n', encoding="utf8")
    for arguments in (["segment", "a.jsonl", "-o", "a.jsonl"], ["tokenizer", "bpe", "a.jsonl", "-o", "."]):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.chdir(tmp_path)
            cli.main(arguments)
        assert ended.value.code == 2 and capsys.readouterr().err.startswith("course: -o ")
    assert (tmp_path / "a.jsonl").read_text(encoding="utf8") == '{"text": "雨。"}\n'


COMMANDS = Path(__file__).parents[1] / "docs/commands.md"


def test_the_readmes_commands_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "downloads").mkdir()
    dump = tmp_path / "downloads" / "jawiki-20261101-pages-articles-multistream.xml.bz2"
    dump.symlink_to(workspace.data("jawiki-sample.xml.bz2"))
    (tmp_path / "ja.txt.xz").symlink_to(workspace.data("webtext-sample.txt.xz"))
    lines = [
        line.split("#")[0].split()
        for line in COMMANDS.read_text(encoding="utf8").split("\n")
        if line.startswith("    course ")
    ]
    commands = [line[1:] for line in lines if line[1] in ("corpus", "segment", "tokenizer") and line[2] != "download"]
    assert len(commands) >= 4
    for command in commands:  # the sample supports fewer entries than a real corpus
        course(capsys, *(word.replace("vocab_size=32000", "vocab_size=6000") for word in command))
    assert {"wiki.jsonl", "web.jsonl", "wiki.txt", "tokenizer"} <= {path.name for path in tmp_path.iterdir()}


def test_from_lines_to_a_model_that_generates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, words, half, both = (tmp_path / name for name in ("lines.txt", "tokenizer", "half", "both"))
    lines.write_text("江戸 時代 の 学校 。\n学生 が 大学 で 学ぶ 。\n\n雨 が 降る 。\n\n" * 200, encoding="utf8")
    course(capsys, "tokenizer", "bpe", lines, "-o", words, "--set", "vocab_size=280")
    said = course(capsys, "tokenize", lines, "--tokenizer", words, "-o", half, "--append-eod", "--workers", 2)
    assert "400 documents" in said and f"{half}.bin, {half}.idx" in said
    assert "800 documents" in course(capsys, "tokens", half, half, "-o", both)
    assert orjson.loads(course(capsys, "tokens", both, "--json"))[0]["problem"] == ""
    assert "fits" in course(capsys, "memory", "-c", "gpt2-125m.yaml", "--gpus", 4)
    settings = [
        f"data.input=[{both}]", f"data.tokenizer={words}", "model.vocab_size=280", "model.num_layers=1", "model.hidden_size=32",
        "launch.ranks=1", "engine.max_steps=4", "engine.eval_freq=2", "engine.logging_freq=2", "engine.tracking=[]",
    ]  # fmt: skip
    run = tmp_path / "run"
    said = course(
        capsys,
        "pretrain",
        "-c",
        "gpt2-tiny.yaml",
        "-o",
        run,
        *(word for value in settings for word in ("--set", value)),
    )
    assert "global step 4" in said and f"4 steps → {run / 'model'}" in said
    assert "step 4" in course(capsys, "export", run, "-o", tmp_path / "model")
    said = course(
        capsys, "generate", tmp_path / "model", "学生が", "--set", "max_new_tokens=5", "--set", "num_return_sequences=2"
    )
    assert said.count("学生が") == 2


def test_from_texts_with_classes_to_a_gptsan_that_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed, words, examples, base, stage = (
        workspace.data("classified/list.csv"), *(tmp_path / name for name in ("words", "examples", "base", "stage")),
    )  # fmt: skip
    texts = sorted(listed.parent.glob("*/0*.txt"))
    assert "entries 600" in course(capsys, "gptsan", "vocabulary", *texts, "-o", words, "--set", "size=600")
    said = course(
        capsys, "gptsan", "encode", listed, "--tokenizer", words, "--mode", "lm", "-o", examples,
        "--set", "num_context=64", "--set", "d_spout=4", "--workers", 2,
    )  # fmt: skip
    assert "documents 192" in said and "classes 4" in said and list(examples.glob("lm_*.tfrecord"))
    changes = [
        f"data.input={examples}", "launch.ranks=1", "engine.max_steps=2", "engine.eval_freq=0", "engine.logging_freq=1", "engine.tracking=[]",
    ]  # fmt: skip
    shape = [
        f"data.tokenizer={words}",
        "model.shape={vocab_size: 600, max_position_embeddings: 80, d_model: 32, d_ff: 64, d_ext: 64, d_spout: 4, num_switch_layers: 1, "
        "num_heads: 2, num_experts: 2}",
    ]
    new = (word for value in (*changes, *shape) for word in ("--set", value))
    said = course(capsys, "gptsan", "train", "-c", "gptsan-tiny.yaml", "-o", base, *new)
    assert "global step 2" in said and f"→ {base / 'model'}" in said
    said = course(capsys, "gptsan", "add-extra-stage", base / "model", "-o", stage, "--layers", 2)
    assert "layers 3" in said
    assert "fits" in course(capsys, "memory", "-c", stage / "train.yaml", "--set", f"data.input={examples}")
    changes += [f"model.checkpoint={stage}", f"model.ignore={stage / 'ignore-params.json'}"]
    said = course(
        capsys, "gptsan", "train", "-c", "gptsan-tiny-extra.yaml", "-o", tmp_path / "run",
        *(word for value in changes for word in ("--set", value)),
    )  # fmt: skip
    assert "frozen" in said
    assert "step 2" in course(capsys, "gptsan", "export", tmp_path / "run", "-o", tmp_path / "model")
    written = course(
        capsys, "gptsan", "generate", tmp_path / "model", "明日は", "--spout", 1, "--top-k", 5, "--num-generate", 2,
        "--seed", 3, "--set", "max_new_tokens=8",
    )  # fmt: skip
    assert written.count("明日は") == 2
    assert course(capsys, "gptsan", "generate", tmp_path / "model", "", "--set", "max_new_tokens=3")
    assert "1: " in course(capsys, "gptsan", "fill", tmp_path / "model", "明日は[MASK]れ。", "--spout", "zeros")


def test_from_a_frozen_base_to_a_served_prefix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, words, base = tmp_path / "lines.txt", tmp_path / "tokenizer", tmp_path / "base"
    lines.write_text("江戸 時代 の 学校 。\n学生 が 大学 で 学ぶ 。\n\n雨 が 降る 。\n\n" * 200, encoding="utf8")
    course(capsys, "tokenizer", "bpe", lines, "-o", words, "--set", "vocab_size=280")
    course(capsys, "tokenize", lines, "--tokenizer", words, "-o", tmp_path / "tokens", "--append-eod")
    changes = [
        "launch.ranks=1",
        "engine.max_steps=2",
        "engine.eval_freq=0",
        "engine.logging_freq=1",
        "engine.tracking=[]",
    ]
    data = [
        f"data.input=[{tmp_path / 'tokens'}]",
        f"data.tokenizer={words}",
        "model.vocab_size=280",
        "model.num_layers=1",
        "model.hidden_size=32",
    ]
    new = (word for value in (*changes, *data) for word in ("--set", value))
    assert "2 steps →" in course(capsys, "pretrain", "-c", "gpt-neox-tiny.yaml", "-o", base, *new)
    model = base / "model"
    sample = tmp_path / "task.jsonl"
    sample.write_text('{"text": "雨が降る。\\n学生が学ぶ。"}\n' * 40, encoding="utf8")
    task = [f"data.input={sample}", f"model.base={model}", "model.warm_start_steps=2", "optimizer.lr.warmup_steps=1"]
    said = course(
        capsys, "prefix", "train", "-c", "prefix-tiny.yaml", "-o", tmp_path / "run",
        *(word for value in (*changes, *task) for word in ("--set", value)),
    )  # fmt: skip
    assert "global step 2" in said
    assert "smile" in course(capsys, "prefix", "export", tmp_path / "run", "-o", tmp_path / "smile.safetensors")
    assert "peft form" in course(
        capsys,
        "prefix",
        "convert",
        tmp_path / "smile.safetensors",
        "-o",
        tmp_path / "peft",
        "--form",
        "peft",
        "--base",
        model,
    )
    assert "deployed" in course(capsys, "prefix", "report", model)
    said = course(
        capsys, "prefix", "generate", model, "--prefix", tmp_path / "peft", "雨が", "--set", "max_new_tokens=3"
    )
    assert said.startswith("[no prefix] 雨が") and "[smile] 雨が" in said
    assert "fits" in course(capsys, "memory", "-c", "prefix-neox-3.6b.yaml")
    served = tmp_path / "served"
    said = course(
        capsys,
        "ft",
        "export",
        model,
        "-o",
        served,
        "--tensor-parallel",
        2,
        "--prefix",
        tmp_path / "smile.safetensors",
        "--prefix",
        "none=",
    )
    assert "tasks smile, none" in said
    assert "2-gpu" in course(capsys, "ft", "inspect", served, "--values")
    course(capsys, "serve", served, "-o", tmp_path / "repository", "--backend", "fastertransformer")
    assert 'backend: "fastertransformer"' in (tmp_path / "repository/fastertransformer/config.pbtxt").read_text()
    assert "docker run" in course(capsys, "serve", served, "--print")
    assert "int8" in course(capsys, "ct2", "export", model, "-o", tmp_path / "ct2", "--quantization", "int8")
    assert "雨が" in course(capsys, "ct2", "generate", tmp_path / "ct2", "雨が", "--set", "max_new_tokens=3")
