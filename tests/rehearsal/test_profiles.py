"""Every profile carries the course: from an empty workspace, on small copies of what it downloads.

All products of each profile are built, and each notebook runs in one profile: all in each would take 27 minutes of
processor time, which `python -m tests.rehearsal.run` does.
"""

import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import nbformat
import pytest
from course_lib.corpus.config import SOURCES_SECTION
from course_lib.gptsan.config import RECIPE_SECTION as GPTSAN_RECIPE
from course_lib.prefix.config import RECIPE_SECTION as PREFIX_RECIPE
from course_lib.workspace.chapters import CHAPTERS

from tests.rehearsal import PROFILES, published
from tests.rehearsal.mirror import DAY
from tests.rehearsal.stage import Stage, standing

NOTEBOOKS = {
    "single-gpu": ("02_normalize_and_segment", "06_prefix_tuning", "07_fastertransformer_conversion"),
    "xl": ("01_corpus_prep", "05_gptsan_extra_stage"),
    "laptop": ("04_gpt2_zero2_pretraining",),
    "colab": ("03_tokenizers", "04_gpt2_by_hand", "04_gpt2_to_llama", "04_gpt2_zero2_pretraining", "06_rewards"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    published.write_all(folder / "hub")
    return folder / "hub"


def test_each_notebook_runs_in_a_profile() -> None:
    assert {*NOTEBOOKS} == {*PROFILES}
    assert {*chain(*NOTEBOOKS.values())} == {*chain(*(chapter.notebooks for chapter in CHAPTERS))}


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.timeout(1200)
def test_the_course_runs(name: str, models: Path, tmp_path: Path) -> None:
    shutil.copytree(models, tmp_path / "hub")
    with standing(name, tmp_path) as stage:
        command = [sys.executable, "-m", "tests.rehearsal.part", *NOTEBOOKS[name]]
        done = subprocess.run(command, env=stage.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    workspace = tmp_path / f"workspace/{name}-rehearsal"
    executed = {path.stem: path for path in workspace.glob("*/*/*.ipynb")}
    assert sorted(executed) == sorted(NOTEBOOKS[name])
    for path in executed.values():
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in cells)
        assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    assert_texts(name, stage, workspace)
    assert_models(name, stage, workspace)
    # checkpoints are on the drive that colab mounts
    assert (tmp_path / "drive/course").is_dir() == (name == "colab")


def assert_texts(name: str, stage: Stage, workspace: Path) -> None:
    """The dump came over HTTP, whole or the part that the profile asks for, and its checksum was verified."""
    sources = SOURCES_SECTION.read(of=name)
    part = f"{sources.part}.xml-" if sources.part else ".xml.bz2"
    dumps = [path for path in stage.downloaded() if "pages-articles" in path]
    if sources.wikipedia == "bundled":
        assert not stage.downloaded()
        return
    assert len(dumps) == 1 and dumps[0].startswith(f"/jawiki/latest/jawiki-latest-pages-articles-multistream{part}")
    assert "/jawiki/latest/jawiki-latest-sha1sums.txt" in stage.downloaded()
    assert ("/cc-100/ja.txt.xz" in stage.downloaded()) == (sources.webtext == "download")
    assert len(list((workspace / "downloads").glob("jawiki-*.bz2"))) == 1
    assert DAY not in "".join(stage.downloaded())


def assert_models(name: str, stage: Stage, workspace: Path) -> None:
    """The published models of the profile came from the Hub, in one format each, and no other models."""
    wanted = {
        "gptsan": GPTSAN_RECIPE.read(of=name).checkpoint,
        "prefix": PREFIX_RECIPE.read(of=name).checkpoint,
    }
    asked = {path.removeprefix("/api/models/").partition("/tree")[0] for path in stage.downloaded() if "/api/" in path}
    assert asked == {checkpoint for checkpoint in wanted.values() if checkpoint}
    for chapter, checkpoint in wanted.items():
        # Without a checkpoint, the base of chapter 6 is chapter 4's model.
        base = "pretrain/gpt2" if chapter == "prefix" and not checkpoint else f"{chapter}/base"
        names = sorted(path.name for path in (workspace / base / "model").glob("*.*"))
        weights = [name for name in names if name.endswith((".bin", ".safetensors"))]
        assert weights == (["pytorch_model.bin"] if checkpoint == published.GPTSAN else ["model.safetensors"])
