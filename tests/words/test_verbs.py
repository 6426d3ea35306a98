"""What verbs print is in the reader's language, apart from keys, values and paths; JSON and files are English."""

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from course_lib import cli
from course_lib.doctor import Check, table
from course_lib.errors import CourseError
from course_lib.language.messages import Problem, Remark, aligned, padded, told, width
from course_lib.language.words import mark
from course_lib.scale.status import StageStatus
from course_lib.scale.status import table as scale_table
from course_lib.serving.check import Finding
from course_lib.serving.ct2 import Ct2Report

from tests.words import pseudo

Run = Callable[..., str]
TEXT = "これは{number}番目の文章です。東京と大阪の間を電車で移動しました。\n\n"
# Names in what the verbs print: programs, fonts and licenses.
NAMES = {"Python", "DeepSpeed", "MeCab", "Juman", "Triton", "fugashi", "jumandic", "ninja", "pip", "install", "torch"}
NAMES |= {"IPAexGothic", "cpu", "ZeRO", "recompute"}
# Commands that a remedy names.
COMMANDS = {"apt", "get", "course"}


@pytest.fixture
def run(catalogues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs a verb in the pseudo-language, in an empty folder, and returns what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_LOCALE", str(catalogues))
    monkeypatch.setenv("COURSE_LANG", pseudo.LANGUAGE)
    (tmp_path / "in.txt").write_text("".join(TEXT.format(number=number) for number in range(60)), encoding="utf8")

    def run_verb(*arguments: object, code: int = 0) -> str:
        capsys.readouterr()
        assert cli._main(list(map(str, arguments))) == code
        found = capsys.readouterr()
        return found.out + found.err

    return run_verb


def english(text: str, *names: str) -> set[str]:
    return set(pseudo.english(text)) - NAMES - {*names}


def test_doctor(run: Run) -> None:
    told = run("doctor")
    assert english(told, *COMMANDS) == set()
    report = run("doctor", "--json")
    assert "«" not in report and {check["part"] for check in json.loads(report)["checks"]} >= {"Memory", "Disk"}


def test_what_doctor_says_about_missing_parts(run: Run) -> None:
    checks = [
        Check(mark("Disk"), False, Remark(mark("{size} free for the workspace"), size="1 GB"), mark("free some space")),
        Check("Juman++", False, Problem("a.txt: no such file"), mark("nothing runs"), mark("close other programs")),
        Check("torch", None, ""),
    ]
    assert english(table(checks)) == set()
    assert all(line.startswith(" " * 20) for line in table(checks).splitlines() if "wíthóút" in line)


def test_status(run: Run) -> None:
    told = run("status")
    assert english(told, "tiny") == set()
    rows = json.loads(run("status", "--json"))
    assert {row["state"] for row in rows} <= {"fresh", "stale", "missing"}
    assert not any("«" in row["reason"] for row in rows)


def test_run_and_an_archive_of_products(run: Run) -> None:
    assert english(run("scale", "plan"), "jawiki") == set()
    assert english(run("new", "mine", "in.txt"), "export", "profile", "show", "run", "all", "course") == set()


@pytest.mark.parametrize("profile", ["tiny", "xl"])
def test_profile_show(run: Run, profile: str) -> None:
    settings, _, costs = run("profile", "show", profile).partition("#")
    head = settings.split("\n\n")[0]
    assert english(head, profile) == set()
    licenses = {"MIT", "GFDL", "Tanrei", "rinna"}
    assert english(costs, *licenses, "latest", "smile", "plain", "lines", "course", "VERB", "CC") == set()
    content = run("profile", "show", profile, "--json")
    assert "«" not in content and json.loads(content)["stages"][0]["what"] == "extraction and cleaning"


@pytest.mark.parametrize("file", ["gpt2-xl.yaml", "prefix-neox-3.6b.yaml"])
def test_memory(run: Run, file: str) -> None:
    keys = {"none", "selective", "full", "block", "sdpa", "zero", "model", "batch"}
    assert english(run("memory", "-c", file), *keys) == set()
    assert "«" not in run("memory", "-c", file, "--json")


def test_from_text_to_tokens(run: Run, tmp_path: Path) -> None:
    assert english(run("segment", "in.txt", "-o", "segmented.txt")) == set()
    assert english(run("tokenizer", "bpe", "segmented.txt", "-o", "bpe", "--set", "vocab_size=310"), "bpe") == set()
    assert english(run("tokenize", "segmented.txt", "--tokenizer", "bpe", "-o", "tokens")) == set()
    assert english(run("tokens", "tokens", "tokens"), "tokens", "uint") == set()
    assert "«" not in run("tokens", "tokens", "--json")
    reasons = ("webtext", "too_short", "near_duplicate", "repeated_lines")
    assert english(run("corpus", "webtext", "in.txt", "-o", "clean.jsonl"), *reasons) == set()
    (tmp_path / "gold.txt").write_text("東京 と 大阪\n", encoding="utf8")
    assert english(run("segment-eval", "gold.txt"), "mecab") == set()


def test_a_run_of_scale(run: Run) -> None:
    stages = [
        StageStatus("split", "input", 2, 1, 4, 2, 1, 1e6, 400.0, {0: "unit 0001: in.txt: no such file"}),
        StageStatus("documents", "shard"),
    ]
    stages[1].failures[3] = "its process 1 on a1 was killed (out of memory?)"
    assert english(scale_table(stages), "split", "documents") == set()


def test_findings_and_summaries(run: Run) -> None:
    problem = Problem(f"{Path('/a/config.ini')}: byte 3 is not UTF-8", Path("/a/config.ini"))
    finding = Finding("missing", "x.bin", Remark(mark("expected {size:,} bytes"), size=3))
    assert english(str(finding)) == set() and finding.message == "expected 3 bytes"
    assert english(str(Finding("config", "config.ini", problem)), "UTF") == set()
    assert problem == "byte 3 is not UTF-8"
    assert english(Ct2Report(Path("a"), "GPT-2", 3, "float32", 3, 1).summary(), "GPT", "float") == set()


def test_a_remark_is_its_english_text(run: Run) -> None:
    inner = Remark(mark("twice the bytes: fp32"))
    remark = Remark(mark("every file has {other}, but config.ini says {dtype}"), other=inner, dtype="fp16")
    assert remark == "every file has twice the bytes: fp32, but config.ini says fp16"
    assert json.dumps(remark) == json.dumps(str(remark)) and str(CourseError(remark)) == remark
    copies: list[Any] = [copy.deepcopy(remark), pickle.loads(pickle.dumps(remark))]
    for each in (remark, *copies):
        assert each == remark and told(each).count("«") == 2 and "twíçé" in told(each)
    assert told("/a path") == "/a path"


def test_columns_have_the_same_width_on_the_screen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert width("状態 ok") == 7 and padded("状態", "<6") == "状態  " and padded("状態", ">3") == "状態"
    assert aligned([("状態", "a"), ("a", "大きさ")], right={1}) == ["状態       a", "a     大きさ"]
    monkeypatch.delenv("COURSE_LANG")
    assert width("状態") == 2 and aligned([("ab", "c"), ("d", "e")]) == ["ab  c", "d   e"]
