"""Every notebook runs alone, in a workspace of its own, and gives the stored outputs (nbval, strict)."""

import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.chapters import CHAPTERS, Chapter


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.notebook)
def test_outputs_are_as_stored(chapter: Chapter, own_workspace: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--nbval", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(chapter.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert any(own_workspace.rglob("manifest.json"))
