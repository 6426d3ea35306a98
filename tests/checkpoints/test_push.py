"""Uploading, against a stand-in of the Hub: what arrived, and what each refusal says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from course_lib.checkpoints.push import push
from course_lib.errors import CourseError, UsageError

from tests.checkpoints import hub
from tests.checkpoints.hub import Hub

PUSHED = {
    "config.json": b'{"model_type": "gpt2"}',
    "model.safetensors": bytes(range(256)) * 1000,
    "preparation.json": b"{}",
    "README.md": "---\nlanguage: ja\n---\n\n# モデル\n".encode(),
    "tokenizer.model": b"\x89PNG\r\n\x1a\n" + bytes(100),
}
KEPT = {"manifest.json": b"{}", "training_args.bin": b"\x80", ".env": b"HF_TOKEN=x"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name, content in (PUSHED | KEPT).items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with hub.online(monkeypatch, tmp_path) as server:
        yield server


@pytest.mark.parametrize(("private", "visibility"), [(True, "private"), (False, "public")])
def test_every_byte_of_the_model_arrives_and_nothing_else(
    folder: Path, online: Hub, private: bool, visibility: str
) -> None:
    assert push(folder, "group/japanese-gpt2", private) == f"{online.endpoint}/group/japanese-gpt2"
    assert online.visibility == {"group/japanese-gpt2": visibility}
    assert online.files == {"group/japanese-gpt2": PUSHED}
    assert set(online.blobs.values()) == {PUSHED["model.safetensors"], PUSHED["tokenizer.model"]}


def test_private_is_not_uploaded_in_public(folder: Path, online: Hub) -> None:
    online.visibility["group/tiny"] = "public"
    with pytest.raises(UsageError, match="^--private: .*/group/tiny exists and is public"):
        push(folder, "group/tiny", private=True)
    assert not online.files and not online.blobs


def test_a_missing_token_is_one_clear_line(folder: Path, online: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UsageError, match="^HF_TOKEN: no token; allowed: [^\n]*$"):
        push(folder, "group/tiny")
    assert online.calls == []


def test_refusals_say_what_was_refused(folder: Path, online: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CourseError, match=r"^[^\n]*stranger/tiny \(403\)[^\n]*$"):
        push(folder, "stranger/tiny")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(CourseError, match=r"^[^\n]*group/tiny \(401\)[^\n]*$"):
        push(folder, "group/tiny")


def test_a_file_that_fails_is_named(folder: Path, online: Hub) -> None:
    online.broken = True
    with pytest.raises(CourseError, match="group/tiny is not uploaded: [^\n]*'tokenizer.model'|'model.safetensors'"):
        push(folder, "group/tiny")
    assert not online.files
