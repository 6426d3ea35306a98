"""Where the runs of products are: in the workspace, or in a folder that survives the machine."""

from pathlib import Path

import pytest
from course_lib.training.run_product import runs_folder
from course_lib.workspace import products as workspace


def test_runs_are_on_a_drive_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert runs_folder("pretrain/runs") == workspace.root() / "pretrain/runs"
    drive = tmp_path / "drive"
    profile = tmp_path / "mine.yaml"
    profile.write_text(f"extends: tiny\ntraining: {{runs: {{folder: {drive}/course}}}}\n")
    monkeypatch.setenv("COURSE_PROFILE", str(profile))
    assert runs_folder("pretrain/runs") == workspace.root() / "pretrain/runs"
    drive.mkdir()
    assert runs_folder("pretrain/runs") == drive / "course/mine/pretrain/runs"
