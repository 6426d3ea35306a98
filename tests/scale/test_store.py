"""The store's messages: file systems out of reach, records changed by hand, folders of somebody else."""

from pathlib import Path
from typing import Any

import pytest
from course_lib.errors import CourseError, UsageError
from course_lib.scale import run
from course_lib.scale.config import ScaleConfig
from course_lib.scale.status import status
from course_lib.scale.store import Store


class NoCredentials(Exception):
    """As botocore's NoCredentialsError, whose class no other library knows."""

    def __str__(self) -> str:
        return "Unable to locate credentials"


class Unreachable:
    """A remote folder whose every function fails as S3 does without credentials."""

    def __getattr__(self, name: str) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise NoCredentials

        return (lambda *_, **__: f"s3://bucket/{_[0]}") if name == "resolve_paths" else fail

    def invalidate_cache(self) -> None:
        pass


def test_a_folder_out_of_reach_is_one_line(tmp_path: Path) -> None:
    store = Store("memory://run")
    store.folder, store.local = Unreachable(), False
    (tmp_path / "file").write_text("x")
    calls = (
        lambda: store.read("scale.json"),
        lambda: store.json("scale.json"),
        lambda: store.sizes(""),
        lambda: store.write("x", b""),
        lambda: store.remove("x"),
        lambda: store.publish(tmp_path, "split"),
        lambda: store.cached("x"),
        lambda: store.others(),
    )
    for call in calls:
        with pytest.raises(
            CourseError, match="^s3://bucket/.*: cannot be reached, or is not allowed: Unable to locate"
        ):
            call()


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"tasks": "x"}', '{"unknown": 1}'])
def test_a_record_changed_by_hand_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "scale.json").write_text(content)
    with pytest.raises(CourseError, match="scale.json: |tasks: |unknown: "):
        status(str(tmp_path))


def test_a_run_begins_in_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("x\n")
    chosen = ScaleConfig(output=str(tmp_path), webtext=(str(tmp_path / "text.txt"),))
    with pytest.raises(UsageError, match=r"holds other files: text\.txt; allowed: a new folder, or a run"):
        run.prepare(chosen)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_the_mark_of_a_product_is_not_published(tmp_path: Path) -> None:
    from course_lib.files import FILE_LIST, atomic_folder

    with atomic_folder(tmp_path / "made/tokenizer") as folder:
        (folder / "tokenizer.json").write_text("{}")
    assert (tmp_path / "made/tokenizer" / FILE_LIST).is_file()
    assert Store(str(tmp_path / "run")).publish(tmp_path / "made", "tokenizer") == {
        "tokenizer/tokenizer/tokenizer.json": 2
    }
