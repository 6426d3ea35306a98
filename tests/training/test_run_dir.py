"""Which checkpoints of a run count and stay, and which folders a run may use; without training."""

import shutil
from pathlib import Path
from typing import cast

import pytest
from course_lib.errors import CourseError, UsageError
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training import checkpoint, run_dir
from course_lib.training.run import Run
from course_lib.training.run_dir import CONFIG, OUTPUT


def make(run: Path, step: int, whole: bool = True) -> Path:
    folder = run / checkpoint.FOLDER / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"1234")
    if whole:
        checkpoint.mark_complete(folder)
    return folder


def test_only_whole_checkpoints_count(tmp_path):
    made = {step: make(tmp_path, step) for step in (5, 10, 100)}
    make(tmp_path, 20, whole=False)
    assert checkpoint.whole_checkpoints(tmp_path) == [made[100], made[10], made[5]]
    (made[100] / "weights").write_bytes(b"12")  # cut short
    (made[10] / "weights").unlink()
    assert checkpoint.whole_checkpoints(tmp_path) == [made[5]]
    (made[5] / checkpoint.COMPLETE).write_text("{", encoding="utf8")
    assert checkpoint.whole_checkpoints(tmp_path) == []


def test_pruning_removes_only_what_the_run_wrote(tmp_path):
    checkpoint.begin_record(tmp_path)
    for step in (1, 2, 3):
        checkpoint.record(tmp_path, step)
        make(tmp_path, step)
    checkpoint.record(tmp_path, 4)
    make(tmp_path, 4, whole=False)  # killed while it was saved
    checkpoints = tmp_path / checkpoint.FOLDER
    copies = (
        "checkpoint-best",
        "checkpoint-2.bak",
        "checkpoint-notes",
        "checkpoint-7",
        "checkpoint-02",
        "checkpoint-２",
    )
    for name in copies:
        shutil.copytree(checkpoints / "checkpoint-1", checkpoints / name)
    (checkpoints / "checkpoint-8").mkdir()
    (checkpoints / "checkpoint-9").write_text("a file of the user's")
    checkpoint.prune(tmp_path, keep=2)
    left = {path.name for path in checkpoints.iterdir()}
    assert left == {"checkpoint-2", "checkpoint-3", "checkpoint-8", "checkpoint-9", *copies}
    assert [path.name for path in checkpoint.whole_checkpoints(tmp_path)] == ["checkpoint-3", "checkpoint-2"]


def test_pruning_keeps_what_the_user_put_into_a_checkpoint(tmp_path):
    checkpoint.begin_record(tmp_path)
    for step in (1, 2, 3):
        checkpoint.record(tmp_path, step)
        make(tmp_path, step)
    converted = checkpoint.at(tmp_path, 1) / "fp32/pytorch_model.bin"
    converted.parent.mkdir()
    converted.write_text("by zero_to_fp32.py")
    for _ in range(2):
        checkpoint.prune(tmp_path, keep=1)
        left = [
            str(path.relative_to(tmp_path / checkpoint.FOLDER)) for path in (tmp_path / checkpoint.FOLDER).rglob("*")
        ]
        assert sorted(left) == [
            "checkpoint-1", "checkpoint-1/fp32", "checkpoint-1/fp32/pytorch_model.bin",
            "checkpoint-3", "checkpoint-3/complete.json", "checkpoint-3/weights",
        ]  # fmt: skip
    assert (tmp_path / checkpoint.RECORD).read_text() == '{"steps": [2, 3]}\n'
    assert [path.name for path in checkpoint.whole_checkpoints(tmp_path)] == ["checkpoint-3"]


def test_a_run_by_an_earlier_version_begins_its_record_with_what_is_whole(tmp_path):
    make(tmp_path, 5)
    make(tmp_path, 10, whole=False)
    checkpoint.begin_record(tmp_path)
    assert (tmp_path / checkpoint.RECORD).read_text() == '{"steps": [5]}\n'
    checkpoint.begin_record(tmp_path)
    checkpoint.record(tmp_path, 15)
    assert (tmp_path / checkpoint.RECORD).read_text() == '{"steps": [5, 15]}\n'
    (tmp_path / checkpoint.RECORD).write_text('{"steps": ["5"]}')
    with pytest.raises(CourseError, match=r"checkpoints\.json: steps: expected a list of whole numbers"):
        checkpoint.whole_checkpoints(tmp_path)


def change_missing(folder):
    (folder / "weights").unlink()
    return f"{folder / 'weights'}: is missing"


def change_cut(folder):
    (folder / "weights").write_bytes(b"12")
    return f"{folder / 'weights'}: has 2 bytes instead of 4"


def change_mark(folder):
    (folder / checkpoint.COMPLETE).write_text("{")
    return f"{folder / checkpoint.COMPLETE}: is not readable"


def change_mark_type(folder):
    (folder / checkpoint.COMPLETE).write_text('{"files": ["weights"]}')
    return f"{folder / checkpoint.COMPLETE}: is not readable"


@pytest.mark.parametrize("change", [change_missing, change_cut, change_mark, change_mark_type])
def test_a_run_whose_checkpoints_are_all_damaged_names_the_file(tmp_path, change):
    said = [change(make(tmp_path, step)) for step in (5, 10)]
    with pytest.raises(CourseError) as caught:
        checkpoint.require_undamaged(tmp_path)
    assert str(caught.value).startswith(f"{said[1]}; no checkpoint of the run is whole: restore the file")


def test_what_a_kill_leaves_is_passed_over(tmp_path):
    make(tmp_path, 5, whole=False)
    checkpoint.require_undamaged(tmp_path)


def test_pruning_keeps_the_latest_whole_ones(tmp_path):
    for step in (1, 2, 3):
        make(tmp_path, step)
    make(tmp_path, 4, whole=False)
    checkpoint.prune(tmp_path, keep=2)
    assert sorted(path.name for path in (tmp_path / checkpoint.FOLDER).iterdir()) == ["checkpoint-2", "checkpoint-3"]


class FakeRun:
    """A run without data, as far as `run_dir.prepare` sees it."""

    settings_class = PretrainConfig

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.settings = config.build(
            PretrainConfig, {"engine": {"output_dir": str(folder)}, "batch": {"global_size": 8}}
        )
        self.said: list[str] = []

    def identity(self):
        return {"settings": {}, "inputs": {}}

    def copy_tokenizer(self, folder):
        (folder / "tokenizer.json").write_text("{}")

    def prepare(self, resume: bool) -> int:
        batch = self.settings.batch.resolve(1)
        return run_dir.prepare(cast(Run, self), batch, resume, self.said.append)


def everything(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_in_which_ranks_have_failed_at_once_is_free(tmp_path):
    run = FakeRun(tmp_path / "run")
    (tmp_path / "run" / OUTPUT).write_text("no module named course_lib")
    assert run.prepare(False) == 0


def test_a_refused_folder_keeps_no_lock(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    run = FakeRun(tmp_path)
    for _ in range(2):
        with pytest.raises(UsageError, match="holds other files"), run_dir.sole_user(tmp_path):
            run.prepare(False)
        assert everything(tmp_path) == {"notes.txt": b"mine"}
    with run_dir.sole_user(tmp_path / "run"):
        pass
    assert everything(tmp_path / "run") == {".lock": b""}


@pytest.mark.parametrize("resume", [True, False])
def test_nothing_is_trained_over_damaged_checkpoints(tmp_path, resume):
    run = FakeRun(tmp_path / "run")
    assert run.prepare(False) == 0
    folder = make(run.settings.engine.output_dir, 5)
    checkpoint.record(run.settings.engine.output_dir, 5)
    (run.settings.engine.output_dir / "log.jsonl").write_text("{}\n")
    (folder / "weights").unlink()
    before = everything(tmp_path)
    with pytest.raises(CourseError, match="checkpoint-5/weights: is missing; no checkpoint of the run is whole"):
        run.prepare(resume)
    assert everything(tmp_path) == before
    (folder / checkpoint.COMPLETE).unlink()  # as a kill leaves it
    assert run.prepare(True) == 0


def test_an_older_whole_checkpoint_is_resumed_and_the_damaged_one_named(tmp_path):
    run = FakeRun(tmp_path / "run")
    run.prepare(False)
    for step in (5, 10):
        checkpoint.record(tmp_path / "run", step)
        make(tmp_path / "run", step)
    (tmp_path / "run/checkpoints/checkpoint-10/weights").write_bytes(b"")
    assert run.prepare(True) == 5
    path = tmp_path / "run/checkpoints/checkpoint-10/weights"
    assert f"{path}: has 0 bytes instead of 4; the run continues from checkpoint-5" in run.said


def test_a_folder_with_settings_of_the_user_is_no_run(tmp_path):
    run = FakeRun(tmp_path / "run")
    mine = tmp_path / "run" / CONFIG
    for text in ("engine:  # mine\n  seed: 3\n", "name: some other program\n", "a: [b\n"):
        mine.write_text(text)
        with pytest.raises(UsageError, match="holds other files"):
            run.prepare(False)
        assert mine.read_text() == text
    mine.write_text(config.to_yaml(run.settings))  # as a run that was killed at its start
    assert run.prepare(False) == 0


@pytest.mark.parametrize("content", ["{", "[]", '{"train_batch_size": "4"}', '{"train_batch_size": true}', "{}"])
def test_records_of_a_run_changed_by_hand_are_named(tmp_path, content):
    run = FakeRun(tmp_path / "run")
    run.prepare(False)
    checkpoint.record(tmp_path / "run", 5)
    make(tmp_path / "run", 5)
    (tmp_path / "run" / run_dir.DEEPSPEED).write_text(content)
    with pytest.raises(CourseError, match=rf"^{tmp_path / 'run' / run_dir.DEEPSPEED}: "):
        run.prepare(True)
