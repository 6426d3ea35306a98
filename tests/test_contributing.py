"""CONTRIBUTING.md names files that exist, and its kind of run trains."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from course_lib.paths import REPOSITORY
from course_lib.settings import config
from course_lib.training.loop import silent, train

from tests.pretrain import test_training as pretrain

PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf8")
# What the examples would add.
NEW = {
    "course_lib/japanese/characters.py", "tests/japanese/test_characters.py", "course_lib/command_line/two_ahead.py",
}  # fmt: skip


def test_the_files_that_the_page_names_exist() -> None:
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    named = {word for word in re.findall(r"`([\w./-]+/[\w./-]+\.\w+)`", prose) if not word.startswith(".venv")}
    assert len(named) > 20
    folders = (REPOSITORY, REPOSITORY / "course_lib")
    assert {word for word in named - NEW if not any((folder / word).exists() for folder in folders)} == set()


def test_the_kind_of_run_trains_and_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = PAGE.partition("### A kind of run")[2].partition("```python\n")[2].partition("```")[0]
    file = tmp_path / "two_ahead.py"
    file.write_text(example, encoding="utf8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)
    values = config.to_dict(pretrain.settings(pretrain.inputs(tmp_path), tmp_path / "run", "launch.ranks=1"))
    changes = [
        "kind=two-ahead",
        "engine.max_steps=2",
        "optimizer.lr.warmup_steps=1",
        "engine.save_steps=1",
        "engine.tracking=[]",
    ]
    run = module.TwoAhead(config.build(module.TwoAheadConfig, values, changes))
    trained = train(run, on_message=silent)
    assert trained.steps == 2
    run.export(tmp_path / "model")
    weights = (tmp_path / "model" / "model.safetensors").read_bytes()
    names = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
    assert "transformer.wte.weight" in names and "second_head.weight" not in names
