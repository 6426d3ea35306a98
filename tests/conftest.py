"""Shared by all tests: a workspace of their own, and no profile from outside."""

import signal
from pathlib import Path

import pytest

# A shell's background jobs ignore Ctrl-C, and so would the programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_workspace(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path_factory.mktemp("workspace")
    monkeypatch.setenv("COURSE_WORKSPACE", str(place))
    monkeypatch.delenv("COURSE_PROFILE", raising=False)
    return place
