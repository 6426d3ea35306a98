"""What `course doctor` says of a whole machine and of one with parts missing."""

import importlib
import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from course_lib import doctor
from course_lib.doctor import Check

PARTS = [
    "System",
    "Python",
    "torch",
    "DeepSpeed",
    "C++ compiler",
    "MeCab + jumandic",
    "Juman++",
    "Triton server",
    "Japanese font",
]
ABSOLUTE = re.compile(r"(?<![\w.:/…])/\w")


@pytest.fixture(scope="module")
def found() -> list[Check]:
    return doctor.examine()


def missing(part: str) -> Check:
    """The check of one part that is not well, after a look at how the table tells of it."""
    check = next(check for check in doctor.examine() if check.part == part)
    row, cost, remedy = doctor.table([check]).splitlines()
    assert row.startswith(check.part)
    assert check.cost and check.cost in cost
    assert check.remedy and check.remedy in remedy
    return check


def test_every_part_has_a_line_and_only_missing_ones_more(found: list[Check]) -> None:
    assert [check.part for check in found] == [*PARTS, "Disk", "Memory"]
    assert len(doctor.table(found).splitlines()) == len(found) + 2 * sum(not check.ok for check in found)


def test_the_report_is_json_without_a_path_of_this_machine(found: list[Check]) -> None:
    written = json.dumps(doctor.report(found), ensure_ascii=False)
    assert json.loads(written)["versions"]["numpy"] == metadata.version("numpy")
    assert not ABSOLUTE.search(written) and str(Path.home()) not in written


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("'/opt/x y/jumanpp': cannot", "'…/x y/jumanpp': cannot"),
        ("/jumanpp, /a/b.so and https://a.org/b, 1/2", "…/jumanpp, …/b.so and https://a.org/b, 1/2"),
    ],
)
def test_paths_are_cut_to_their_names(text: str, wanted: str) -> None:
    assert doctor.report([Check("x", False, text)])["checks"][0]["found"] == wanted


@pytest.mark.parametrize(
    ("system", "machine", "release", "said"),
    [
        ("Linux", "x86_64", "6.1.0-13-amd64", "Linux x86_64: tried"),
        ("Linux", "x86_64", "5.15.167.4-microsoft-standard-WSL2", "WSL 2 x86_64: not tried"),
        ("Linux", "aarch64", "6.1.0", "Linux aarch64: not tried"),
        ("Darwin", "arm64", "23.6.0", "macOS arm64: not tried"),
    ],
)
def test_the_system_is_named(
    system: str, machine: str, release: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("system", system), ("machine", machine), ("release", release)):
        monkeypatch.setattr(f"course_lib.doctor.platform.{name}", lambda value=value: value)
    check = missing("System") if "not" in said else doctor.examine()[0]
    assert check.found == said and check.ok is (True if "not" not in said else None)


def test_a_machine_without_gpu_is_examined_without_torch() -> None:
    """Its import takes most of the two seconds that the command may take."""
    code = "import sys; from course_lib import doctor; doctor.GPUS = (); doctor.examine(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_torch_that_does_not_load_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "GPUS", ("/",))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert missing("torch").ok is False


def test_without_any_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JUMANPP", raising=False)
    monkeypatch.setitem(sys.modules, "jumandic", None)
    assert [missing(part).ok for part in PARTS[2:]] == [False, False, None, False, None, None, False]


def test_a_dictionary_that_does_not_load_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("jumandic"), "MECAB_ARGS", "-r /nowhere/mecabrc -d /nowhere/dic")
    check = missing("MeCab + jumandic")
    assert check.ok is False and check.found.endswith("/nowhere/mecabrc") and "\n" not in check.found
    assert "/nowhere" not in json.dumps(doctor.report([check]))


@pytest.mark.parametrize("body", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho hello\n", "no program"])
def test_a_jumanpp_that_does_not_work_is_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    binary = tmp_path / "jumanpp"
    monkeypatch.setenv("JUMANPP", str(binary))
    binary.write_text(body)
    binary.chmod(0o755)
    check = missing("Juman++")
    assert check.ok is False and str(tmp_path) not in json.dumps(doctor.report([check]))


@pytest.mark.parametrize(("free_bytes", "enough"), [(10**9, False), (10**11, True)])
def test_too_little_disk_or_memory(monkeypatch: pytest.MonkeyPatch, free_bytes: int, enough: bool) -> None:
    usage: Any = SimpleNamespace(total=10**12, available=free_bytes, free=free_bytes)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: usage)
    assert [check.ok for check in doctor.examine()[-2:]] == [enough, enough]
