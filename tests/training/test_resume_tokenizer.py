"""A run is resumed only with the tokenizer that it started with."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from course_lib.errors import UsageError
from course_lib.training import run_dir

from tests.checkpoints import tokenizer_folders as folders


def task(run: Path, tokenizer: Path) -> Any:
    """The part of a task that the check uses."""

    def copy_tokenizer(folder: Path) -> None:
        shutil.copytree(tokenizer, folder, dirs_exist_ok=True)

    return SimpleNamespace(
        settings=SimpleNamespace(engine=SimpleNamespace(output_dir=run)), copy_tokenizer=copy_tokenizer
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folders.json_folder(tmp_path / "run" / run_dir.TOKENIZER, "bpe-byte-level", model_max_length=64)
    return tmp_path / "run"


def test_the_same_tokenizer_in_another_folder_and_for_another_length_resumes(run: Path, tmp_path: Path) -> None:
    same = folders.json_folder(tmp_path / "same", "bpe-byte-level", "GPT2Tokenizer", model_max_length=128)
    (same / "README.md").write_text("A note.")
    run_dir._require_same_tokenizer(task(run, same))
    run_dir._require_same_tokenizer(task(run, run / run_dir.TOKENIZER))


@pytest.mark.parametrize(
    ("kind", "settings", "file"),
    [
        ("bpe-digits", {}, "tokenizer.json"),
        ("bpe-byte-level", {"eos_token": "<s>"}, "tokenizer_config.json"),
        ("bpe-byte-level", {"do_lower_case": True}, "tokenizer_config.json"),
        ("", {}, "tokenizer.json"),
    ],
)
def test_another_tokenizer_is_refused_in_one_line(
    run: Path, tmp_path: Path, kind: str, settings: dict[str, Any], file: str
) -> None:
    other = tmp_path / "other"
    if kind:
        folders.json_folder(other, kind, **settings)
    else:
        folders.spiece_folder(other, "T5Tokenizer", folders.RINNA)
    with pytest.raises(UsageError) as caught:
        run_dir._require_same_tokenizer(task(run, other))
    assert str(caught.value) == (
        f"tokenizer: its {file} is not that of the run in {run}, which has a copy in {run / 'tokenizer'}; "
        "resume it with its own tokenizer, or start a new run in another engine.output_dir"
    )
