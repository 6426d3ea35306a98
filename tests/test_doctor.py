"""What `course doctor` says of a whole machine and of one with parts missing."""

import importlib
import importlib.util
import json
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from course_lib import doctor
from course_lib.doctor import Check
from course_lib.workspace import products as workspace

PARTS = [
    "Python",
    "torch",
    "DeepSpeed",
    "C++ compiler",
    "MeCab + jumandic",
    "Juman++",
    "Triton server",
    "Japanese font",
    "Disk",
    "Memory",
]
ABSOLUTE = re.compile(r"(?<![\w.:/…])/\w")


@pytest.fixture(scope="module")
def found() -> list[Check]:
    return doctor.examine()


def missing(part: str) -> Check:
    """The check of one part that is not well, after a look at how the table tells of it."""
    check: Check = getattr(doctor, part)()
    row, cost, remedy = doctor.table([check]).splitlines()
    assert row == f"{check.part:<20}{'absent' if check.ok is None else 'MISSING':<9}{check.found}".rstrip()
    assert cost.strip() == f"without it: {check.cost}"
    assert remedy.strip() == f"to get it: {check.remedy}"
    assert check.cost and check.remedy
    return check


def test_every_part_has_a_line_and_only_missing_ones_more(found: list[Check]) -> None:
    assert [check.part for check in found] == PARTS
    lines = doctor.table(found).splitlines()
    assert [line[:20].strip() for line in lines if not line.startswith(" ")] == PARTS
    assert len(lines) == len(found) + 2 * sum(not check.ok for check in found)
    for check in found:
        mark = {True: "ok", False: "MISSING", None: "absent"}[check.ok]
        assert f"{check.part:<20}{mark:<9}{check.found}".rstrip() in lines


def test_the_report_is_json_without_a_path_of_this_machine(found: list[Check]) -> None:
    told = json.loads(json.dumps(doctor.report(found)))
    assert [check["part"] for check in told["checks"]] == PARTS
    assert told["versions"]["numpy"] == metadata.version("numpy")
    assert told["versions"].keys() >= {"torch", "transformers", "deepspeed", "fugashi"}
    assert told["cores"] >= 1
    written = json.dumps(told, ensure_ascii=False)
    assert not ABSOLUTE.search(written)
    for place in (Path.home(), Path.cwd(), Path(sys.prefix), workspace.root()):
        assert str(place) not in written or str(place) == "/"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("no such file: /home/me/dic/mecabrc", "no such file: …/mecabrc"),
        ("'/opt/x y/jumanpp': cannot", "'…/x y/jumanpp': cannot"),
        ("/jumanpp, /a/b.so: bad", "…/jumanpp, …/b.so: bad"),
        (
            "github.com/ku-nlp/jumanpp and https://a.org/b, 1/2, and/or",
            "github.com/ku-nlp/jumanpp and https://a.org/b, 1/2, and/or",
        ),
    ],
)
def test_paths_are_cut_to_their_names(text: str, wanted: str) -> None:
    report = doctor.report([Check("x", False, text)])
    assert report["checks"][0]["found"] == wanted


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # import torch now raises ImportError
    check = missing("_torch")
    assert check.ok is False
    assert "pip install torch" in check.remedy


def test_without_deepspeed_and_ninja(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name, *_: None)
    assert missing("_deepspeed").ok is False
    assert "g++" in missing("_compiler").remedy


def test_without_the_triton_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "pytriton" else found(name, *rest)
    )
    check = missing("_triton")
    assert check.ok is None
    assert "pip install --no-deps nvidia-pytriton" in check.remedy


def test_without_mecab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jumandic", None)
    check = missing("_mecab")
    assert check.ok is False
    assert "pip install fugashi jumandic" in check.remedy


def test_a_dictionary_that_does_not_load_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    jumandic = importlib.import_module("jumandic")
    monkeypatch.setattr(jumandic, "MECAB_ARGS", "-r /nowhere/mecabrc -d /nowhere/dic")
    check = missing("_mecab")
    assert (check.ok, check.found.splitlines()) == (False, [check.found])
    assert check.found.endswith("no such file or directory: /nowhere/mecabrc")
    assert "/nowhere" not in json.dumps(doctor.report([check]))


def test_without_jumanpp_the_course_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JUMANPP", raising=False)
    check = missing("_jumanpp")
    assert check.ok is None
    assert doctor.table([check]).startswith("Juman++             absent\n")
    assert "MeCab" in check.cost


@pytest.mark.parametrize("body", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho hello\n", "no program"])
def test_a_jumanpp_that_does_not_work_is_a_row_not_a_crash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str
) -> None:
    binary = tmp_path / "jumanpp"
    binary.write_text(body)
    binary.chmod(0o755)
    monkeypatch.setenv("JUMANPP", str(binary))
    check = missing("_jumanpp")
    assert check.ok is False
    assert str(tmp_path) not in json.dumps(doctor.report([check]))
    monkeypatch.setenv("JUMANPP", str(tmp_path / "none"))
    assert missing("_jumanpp").ok is False


def test_without_a_japanese_font(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib_fontja", None)
    assert "boxes" in missing("_font").cost


class Usage(NamedTuple):
    total: int
    available: int
    free: int


@pytest.mark.parametrize(("room", "enough"), [(10**9, False), (10**11, True)])
def test_too_little_disk_or_memory(monkeypatch: pytest.MonkeyPatch, room: int, enough: bool) -> None:
    usage: Any = Usage(10**12, room, room)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: usage)
    assert (doctor._disk().ok, doctor._memory().ok) == (enough, enough)
    assert "1.0 GB free" in doctor._disk().found or enough
