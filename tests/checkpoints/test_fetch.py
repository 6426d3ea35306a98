"""Fetching a model with the real client of the Hub from a stand-in: which files arrive, and what an interruption costs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from course_lib.checkpoints import fetch
from course_lib.errors import CourseError

from tests.checkpoints import hub
from tests.checkpoints.hub import COMMIT, Hub

SETTINGS = ["config.json", "spiece.model", "tokenizer_config.json", "vocab.txt"]
BESIDES = [".gitattributes", "README.md", "training_args.bin", "onnx/model.json", "spiece.vocab", "a.task0.weight"]
BIN, SAFE = ["pytorch_model.bin"], ["model.safetensors"]
PARTS = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"]
SAFE_PARTS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with hub.online(monkeypatch, tmp_path) as server:
        yield server


def publish(server: Hub, names: list[str]) -> None:
    server.visibility["rinna/small"] = "public"
    server.files["rinna/small"] = {name: f"{name} ".encode() * 9 for name in names}


@pytest.mark.parametrize(
    ("published", "fetched"),
    [
        (BIN, BIN),
        (BIN + SAFE, SAFE),
        (PARTS, PARTS),
        (PARTS + SAFE_PARTS, SAFE_PARTS),
        (["model.fp16.safetensors", *BIN], BIN),
        ([], []),
    ],
)
def test_one_copy_of_the_weights_is_needed(published: list[str], fetched: list[str]) -> None:
    assert sorted(fetch.needed(SETTINGS + BESIDES + published)) == sorted(SETTINGS + fetched)


def test_a_model_arrives_from_the_hub(online: Hub, tmp_path: Path) -> None:
    publish(online, SETTINGS + BESIDES + BIN + SAFE)
    (tmp_path / "product").mkdir()
    counts = fetch.fetch("rinna/small", tmp_path / "product/model")
    assert counts == {"checkpoint": "rinna/small", "revision": COMMIT}
    arrived = {path.name: path.read_bytes() for path in (tmp_path / "product/model").iterdir()}
    assert arrived == {name: online.files["rinna/small"][name] for name in SETTINGS + SAFE}
    assert sorted(online.sent) == sorted(SETTINGS + SAFE)


def test_after_an_interruption_only_the_rest_is_downloaded(online: Hub, tmp_path: Path) -> None:
    publish(online, SETTINGS + SAFE_PARTS)
    online.failing = {SAFE_PARTS[1]}
    with pytest.raises(CourseError, match=r"^rinna/small: the download stopped, and continues when [^\n]*$"):
        fetch.fetch("rinna/small", tmp_path / "model")
    assert not (tmp_path / "model").exists()
    online.failing = set()
    fetch.fetch("rinna/small", tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == sorted(SETTINGS + SAFE_PARTS)
    assert online.sent == {name: len(online.files["rinna/small"][name]) for name in SETTINGS + SAFE_PARTS}
