"""The notebooks' set-up cell on Colab's versions, on the Python at hand: `rehearse.py` does the same in full, by hand.

The environment holds the pins of Colab that are older than the course's own in a way that matters. Everything else, torch
among it, comes from the environment of this test, which lies behind it on the path and is not changed.
"""

import sys
import sysconfig
from pathlib import Path
from typing import Any

import nbformat
import pytest
from course_lib.workspace.chapters import CHAPTERS

from tests.colab import runtime
from tests.colab.runtime import KEPT, Runtime
from tests.notebooks.test_progress_bar import BAR

FIRST = CHAPTERS[0].paths[0]
OLDER = (
    "antlr4-python3-runtime", "backcall", "decorator", "entrypoints", "greenlet", "huggingface_hub", "ipykernel", "ipython",
    "ipython-genutils", "ipywidgets", "jupyter_client", "jupyterlab_widgets", "ml_dtypes", "nbclient", "nest-asyncio", "numpy",
    "peft", "pickleshare", "protobuf", "psutil", "pydantic", "pydantic_core", "pyzmq", "tensorboard", "tokenizers", "tornado", "traitlets",
    "transformers", "typer", "widgetsnbextension",
)  # fmt: skip


@pytest.fixture(scope="module")
def colab(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder = tmp_path_factory.mktemp("colab")
    behind = folder / "behind"
    behind.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("course_lib", "japanese_lm_course")):
            (behind / entry.name).symlink_to(entry)
    made = Runtime.create(folder / "venv", sys.executable, "--without-pip", behind=behind)
    wanted = runtime.pins(runtime.constraints(f"{sys.version_info.major}.{sys.version_info.minor}"))
    chosen = [f"{name}=={wanted[name]}" for name in OLDER]
    try:
        made.pip("install", "--quiet", "--no-deps", "--no-compile", *chosen)
    except AssertionError as error:
        pytest.skip(f"Colab's pins do not install here (no package index?): {str(error).splitlines()[-1]}")
    return made


@pytest.fixture(scope="module")
def installed(colab: Runtime, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was there before the set-up cell, and what it left."""
    folder = tmp_path_factory.mktemp("content")
    before, conflicts = colab.versions(), colab.conflicts()
    wheel, bar = runtime.wheel(folder / "dist", colab.python), BAR.format(steps=4, then="pass")
    runtime.setup_only(FIRST, wheel, folder / "setup.ipynb", bar)
    colab.execute(folder / "setup.ipynb", folder / "workspace")
    return {
        "before": before, "after": colab.versions(), "new": set(colab.conflicts()) - set(conflicts),
        "notebook": folder / "setup.ipynb",
    }  # fmt: skip


def test_set_up_cell_installs_the_wheel(colab: Runtime, installed: dict[str, Any]) -> None:
    assert f"{colab.site}/course_lib/__init__.py" in runtime.text(installed["notebook"])


def test_set_up_cell_leaves_colabs_versions(colab: Runtime, installed: dict[str, Any]) -> None:
    before, after = installed["before"], installed["after"]
    assert {name: after[name] for name in KEPT} == {name: before[name] for name in KEPT}
    assert (after["ipython"], after["ipywidgets"], after["protobuf"]) == ("7.34.0", "7.7.1", "5.29.6")


def test_set_up_cell_adds_no_conflict(installed: dict[str, Any]) -> None:
    assert installed["new"] == set()


def test_first_notebook_runs(colab: Runtime, installed: dict[str, Any], tmp_path: Path) -> None:
    """From another folder, with the wheel only."""
    (tmp_path / FIRST.name).write_bytes(FIRST.read_bytes())
    colab.execute(tmp_path / FIRST.name, tmp_path / "workspace")
    assert "corpus" in {path.parent.parent.name for path in tmp_path.rglob("manifest.json")}


def test_progress_bar_works_with_ipywidgets_7(installed: dict[str, Any]) -> None:
    bar, text = nbformat.read(installed["notebook"], as_version=4).cells[-1].outputs
    assert bar.output_type == "display_data" and bar.data == {} and text.text == "done\n"
