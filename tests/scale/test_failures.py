"""What happens when a task is killed, a file is damaged or the disk is full: what is done is kept, the rest begins anew."""

import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from course_lib.errors import CourseError, UsageError
from course_lib.scale import run as running
from course_lib.scale.run import prepare, run
from course_lib.scale.stages import Documents, Exact, Split
from course_lib.scale.status import status, table
from course_lib.scale.store import Store
from course_lib.scale.text import STAGES, Segment
from course_lib.settings import config

from tests.scale.corpora import in_order, scaled, settings


class Killed(Documents):
    """The stage, but the process of a task is killed after the files of a unit are written."""

    def work(self, unit: str, folder: Path) -> dict[str, Any]:
        note = super().work(unit, folder)
        if unit == "00007":
            os.kill(os.getpid(), signal.SIGKILL)
        return note


class Failing(Documents):
    """The stage, but a unit fails after its files are written."""

    def work(self, unit: str, folder: Path) -> dict[str, Any]:
        note = super().work(unit, folder)
        if unit == "00004":
            raise CourseError("shard: bad\nluck")
        return note


def test_a_killed_task_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes]) -> None:
    chosen = settings(tmp_path / "run", tasks=4, workers=2)
    monkeypatch.setattr(running, "STAGES", tuple(Killed if one is Documents else one for one in STAGES))
    with pytest.raises(CourseError, match=r"documents: a worker process ended before its work was done: .* to resume"):
        run(chosen)
    store = Store(chosen.output)
    assert "00007" not in store.done("documents") and not store.folder.exists("documents/00007.jsonl")
    (one,) = (one for one in status(chosen.output) if one.name == "documents")
    assert one.units == 13 and one.units_done < 13 and one.tasks == 4
    assert "was killed (out of memory?)" in one.failures[3]
    assert "documents: task 3: its process" in table(status(chosen.output))
    # The other worker was stopped as well, maybe between the files of a unit and its marker.
    finished = [f"documents/done/{unit}.json" for unit in store.done("documents")]
    finished += [name for unit in store.done("documents") for name in store.marker("documents", unit)["files"]]
    before = {name: (tmp_path / "run" / name).stat().st_mtime_ns for name in finished}
    monkeypatch.undo()
    # With fewer tasks: nothing of task 3 is left in the status.
    run(replace(chosen, tasks=2))
    after = {name: (tmp_path / "run" / name).stat().st_mtime_ns for name in before}
    assert after == before and scaled(chosen.output) == expected
    assert before
    last = status(chosen.output)
    assert all(one.seconds_left == 0 and not one.failures for one in last) and "all stages are done" in table(last)


def test_a_failing_task_is_named_and_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings(tmp_path / "run", tasks=3)
    monkeypatch.setattr(running, "STAGES", (Split, Failing, Segment))
    with pytest.raises(CourseError, match=r"^documents: 1 of 3 tasks failed; task 1: unit 00004: shard: bad luck; "):
        run(chosen)
    store = Store(chosen.output)
    assert set(store.sizes("logs/documents/completions")) == {f"logs/documents/completions/0000{n}" for n in (0, 2)}
    (one,) = (one for one in status(chosen.output) if one.name == "documents")
    assert one.failures == {1: "unit 00004: shard: bad luck"} and one.running == 0
    # Tasks 0 and 2 have 5 and 4 units; task 1 finished one before the bad one.
    assert one.units_done == 10


def test_damaged_files_are_made_again(
    tmp_path: Path, expected: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = settings(tmp_path / "run", tasks=2)
    prepare(chosen)
    in_order(chosen, (Split,))
    sizes = Store(chosen.output).sizes("split")
    name = [name for name, size in sizes.items() if size > 100 and "/done/" not in name][1]
    path = tmp_path / "run" / name
    path.write_bytes(path.read_bytes()[:-10])
    run(chosen)
    assert "split: unit" in capsys.readouterr().err
    assert scaled(chosen.output) == expected


def test_a_full_disk(tmp_path: Path, expected: dict[str, bytes]) -> None:
    """RLIMIT_FSIZE stands for a full disk: a write over the limit fails with EFBIG."""
    chosen = settings(tmp_path / "run", tasks=2)
    (tmp_path / "run.yaml").write_text(config.to_yaml(chosen), encoding="utf8")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))

    command = [sys.executable, "-m", "course_lib.cli", "scale", "run", "-c", str(tmp_path / "run.yaml")]
    ended = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True)
    (line,) = (line for line in ended.stderr.splitlines() if line.startswith("course:"))
    assert ended.returncode == 1 and "File too large" in line and "tasks failed" in line, ended.stderr
    assert "Traceback" not in ended.stderr
    assert run(chosen) and scaled(chosen.output) == expected


def test_other_settings_are_refused(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "run")
    prepare(chosen)
    with pytest.raises(UsageError, match=r"bpe\.vocab_size: 6000, but .*run was begun with 5000; "):
        prepare(settings(tmp_path / "run", bpe={"vocab_size": 6000, "input_sentence_size": 3000}))
    # Where the work is done may change.
    prepare(settings(tmp_path / "run", tasks=30, workers=3, slurm={"partition": "gpu"}))


def test_stages_wait_for_those_before(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "incomplete", tasks=2)
    in_order(chosen, (Split,))
    # Only one of two tasks.
    Documents(chosen).run(None, 0, 2)
    with pytest.raises(CourseError, match=r"documents: 6 units are not done, such as 00001"):
        Exact(chosen).run(None, 0, 2)
