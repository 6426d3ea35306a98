"""The tuned model as a product: what trains it again, in a run of its own, and what does not."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from course_lib import paths
from course_lib.gptsan import products
from course_lib.settings import yaml_values
from course_lib.workspace import products as workspace
from course_lib.workspace import sources

from tests.gptsan.test_training import TEXTS, inputs

PROFILE: dict[str, Any] = {
    "extends": "tiny",
    "corpus": {"sources": {"world": 0}},
    "gptsan": {
        "recipe": {"checkpoint": "base", "extra_layers": 1, "extra": "run.yaml"},
        "classes": {"num_context": 40, "d_spout": 8},
    },
}
RUN: dict[str, Any] = {
    "spout": {"mode": "onehot"},
    "data": {"held_out": 0.2},
    "batch": {"global_size": 8, "micro_size": 8},
    "optimizer": {"lr": {"max": 1e-2, "min": 1e-3, "warmup_steps": 0}},
    "precision": {"dtype": "fp32"},
    "engine": {"max_steps": 2, "logging_freq": 1, "eval_freq": 0, "save_steps": 2, "tracking": []},
    "launch": {"ranks": 1, "threads": 1, "device": "cpu"},
}


class TunedFolder:
    """A folder with a base, texts with classes, and a profile that tunes the base on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = inputs(folder)
        self.profile, self.run = PROFILE, RUN
        self.write()

    def write(self) -> None:
        for name, content in (("own.yaml", self.profile), ("run.yaml", self.run)):
            (self.folder / name).write_text(yaml_values.dump(content), encoding="utf8")

    def labels(self, change: Callable[[int], int]) -> None:
        rows = [f"{number}.txt,{change(number % len(TEXTS))}" for number in range(24)]
        (self.folder / "list.csv").write_text("\n".join(["filename,fileid", *rows]), encoding="utf8")


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TunedFolder:
    made = TunedFolder(tmp_path)
    monkeypatch.setenv("COURSE_PROFILE", str(tmp_path / "own.yaml"))
    real = paths.data
    monkeypatch.setattr(paths, "data", lambda name: tmp_path / "list.csv" if name.endswith("list.csv") else real(name))
    return made


def runs() -> set[str]:
    return {path.name for path in (workspace.root() / products.RUNS).glob("*")}


def weights() -> bytes:
    return (products.TUNED.path() / products.MODEL / "model.safetensors").read_bytes()


def test_other_labels_width_or_loss_train_the_tuned_model_again(
    tuned: TunedFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first, before = weights(), runs()
    assert "training gptsan/tuned (missing): GPTSAN, 2 + 1 extra layers\n" in capfd.readouterr().out
    assert len(before) == 1

    # labels: the texts, and so the ids, are the same
    tuned.labels(lambda label: (label + 1) % len(TEXTS))
    assert products.TUNED.state().reason == "gptsan/classes is not fresh"
    second = weights()
    assert "training gptsan/tuned (gptsan/classes changed): " in capfd.readouterr().out
    assert second != first and len(runs()) == 2

    # the width that examples are made for
    tuned.profile = PROFILE | {"gptsan": PROFILE["gptsan"] | {"classes": {"num_context": 40, "d_spout": 7}}}
    tuned.write()
    products.TUNED.path()
    assert len(runs()) == 3

    # how the run logs and where
    tuned.run = RUN | {
        "engine": RUN["engine"] | {"logging_freq": 2, "output_dir": "elsewhere"},
        "batch": {"global_size": 8, "micro_size": 4},
    }
    tuned.write()
    assert products.TUNED.state().kind == "fresh"

    # its loss, as another process sees it
    path = sources.LIBRARY / "gptsan/samples.py"
    with monkeypatch.context() as patched:
        patched.setitem(sources.LOADED, path, sources.LOADED[path] + b"\nTEMPERATURE = 2\n")
        patched.setattr(sources, "is_edited", lambda name: False)
        sources.digest.cache_clear()
        assert products.TUNED.state().reason == "the code of gptsan/samples.py changed"
        products.TUNED.path()
    sources.digest.cache_clear()
    assert len(runs()) == 4 and before < runs()


def test_a_finished_run_is_exported_again_without_training(
    tuned: TunedFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    first, before = weights(), runs()
    shutil.rmtree(products.TUNED.folder)
    log = next((workspace.root() / products.RUNS).glob("*/log.jsonl"))
    steps = log.read_text()
    assert weights() == first and runs() == before and log.read_text() == steps


def test_files_that_the_run_names_itself_are_inputs(tuned: TunedFolder) -> None:
    examples = tuned.folder / "examples"
    tuned.run = RUN | {"data": RUN["data"] | {"input": str(examples)}}
    tuned.write()
    named = products.TUNED.resolve()[1]
    assert {path.name for path in named if isinstance(path, Path)} >= {"x.npy", "i.npy", "encoding.json"}
