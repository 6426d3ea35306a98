"""Files that appear whole or not at all, and streams that open by their ending."""

import bz2
import gzip
import lzma
import os
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from course_lib import files, paths
from course_lib.errors import CourseError, UsageError


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {files.FILE_LIST}


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "out.txt"
    with files.atomic_write(target) as file:
        file.write(b"text")
        file.flush()
        assert not target.exists()
    assert target.read_bytes() == b"text"
    with files.atomic_write(target) as file:
        file.write(b"new")
        assert target.read_bytes() == b"text"
    assert target.read_bytes() == b"new"
    assert names(target.parent) == {"out.txt"}


@pytest.mark.parametrize("error", [CourseError("line 3"), KeyboardInterrupt()])
def test_an_error_leaves_the_earlier_product(tmp_path: Path, error: BaseException) -> None:
    target, product = tmp_path / "out.txt", tmp_path / "product"
    target.write_bytes(b"earlier")
    product.mkdir()
    (product / "earlier").write_text("x")
    with pytest.raises(type(error)), files.atomic_write(target) as file:
        file.write(b"half")
        raise error
    assert target.read_bytes() == b"earlier"
    with pytest.raises(type(error)), files.atomic_folder(product, ours=True) as folder:
        (folder / "half").write_text("x")
        raise error
    assert names(product) == {"earlier"} and names(tmp_path) == {"out.txt", "product"}


def test_a_folder_appears_when_it_is_whole_and_replaces_the_earlier_one(tmp_path: Path) -> None:
    target = tmp_path / "new" / "product"
    for round_ in ("first", "second"):
        with files.atomic_folder(target, ours=True) as folder:
            assert names(folder) == set()
            (folder / round_).write_text("x")
            (folder / "deep").mkdir()
            assert not (target / round_).exists()
        assert names(target) == {round_, "deep"}
        assert names(target.parent) == {"product"}
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".gz": gzip.compress,
    "": bytes,
}


@pytest.mark.parametrize("ending", PACK)
def test_a_stream_opens_by_its_ending(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"text{ending}"
    path.write_bytes(PACK[ending](b"one\ntwo\n") * 2)  # two members, as multistream dumps have
    with files.open_binary(path) as file:
        assert file.readlines() == [b"one\n", b"two\n"] * 2


@pytest.mark.parametrize("ending", [".bz2", ".xz", ".gz"])
@pytest.mark.parametrize("tail", [b"garbage that is longer than any header", b"\0\0x"])
def test_bytes_behind_the_last_stream_are_refused_after_its_content(tmp_path: Path, ending: str, tail: bytes) -> None:
    path = tmp_path / f"text{ending}"
    sound = PACK[ending](b"one\ntwo\n")
    path.write_bytes(sound + tail)
    with files.open_binary(path) as file:
        assert (file.readline(), file.readline()) == (b"one\n", b"two\n")
        with pytest.raises(CourseError, match=f"{path.name}: broken {ending[1:]} data"):
            file.read()


def test_the_padding_of_xz_is_taken_between_streams_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "text.xz"
    stream = lzma.compress(b"one\n")
    path.write_bytes(stream + bytes(8) + stream + bytes(2_000_000) + stream + bytes(4))
    with files.open_binary(path) as file:
        assert file.read() == b"one\n" * 3
    path.write_bytes(stream + bytes(4) + b"x")
    with files.open_binary(path) as file, pytest.raises(CourseError, match=f"byte {len(stream) + 4},"):
        file.read()


def test_what_is_no_readable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.bz2").touch()
    for name, wanted in (("", "is a directory"), ("none", "no such file"), ("empty.bz2", "the file is empty")):
        with pytest.raises(CourseError, match=f"{name}: {wanted}"):
            files.open_binary(tmp_path / name)
    os.mkfifo(tmp_path / "pipe")
    assert files.require_file(tmp_path / "pipe") == tmp_path / "pipe"  # a stream has no size


def test_nobodys_files_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "thesis.txt").write_text("years of work")
    for target in (tmp_path / "docs", tmp_path):
        with pytest.raises(UsageError, match="holds other files"), files.atomic_folder(target):
            raise AssertionError("the block must not run")
    assert (tmp_path / "docs" / "thesis.txt").read_text() == "years of work"
    (tmp_path / "product").mkdir()
    (tmp_path / "product" / "preparation.json").write_text("{}")
    with files.atomic_folder(tmp_path / "product") as folder:
        (folder / "new").write_text("x")
    assert names(tmp_path / "product") == {"new"}


# devices, pipes and links


@pytest.mark.parametrize("name", ["pipe", "link", "/dev/stdout", "/dev/fd/1"])
def test_a_device_or_pipe_is_never_replaced_nor_followed_to_a_file(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/stdout")
    for product in (files.atomic_write, files.atomic_folder):
        with pytest.raises(UsageError, match="is a device or pipe"), product(tmp_path / name):
            raise AssertionError("the block must not run")
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink() and names(tmp_path) == {"pipe", "link"}


def test_standard_output_is_written_through(capfd: pytest.CaptureFixture[str]) -> None:
    with files.atomic_write(files.STANDARD_OUTPUT) as file, files.work_folder(files.STANDARD_OUTPUT) as folder:
        file.write(b"text")
        assert folder.is_dir()
    assert capfd.readouterr().out == "text"


def test_what_a_link_names_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_bytes(b"earlier")
    (tmp_path / "far" / "product").mkdir()
    (tmp_path / "link").symlink_to(Path("far", "file"))
    (tmp_path / "folder").symlink_to(tmp_path / "far" / "product")
    with files.atomic_write(tmp_path / "link") as file:
        file.write(b"new")
    with files.atomic_folder(tmp_path / "folder") as folder:
        (folder / "x").write_text("x")
    assert os.readlink(tmp_path / "link") == "far/file" and (tmp_path / "folder").is_symlink()
    assert (tmp_path / "far" / "file").read_bytes() == b"new" and names(tmp_path / "far" / "product") == {"x"}
    assert names(tmp_path) == {"far", "folder", "link"} and names(tmp_path / "far") == {"file", "product"}


# what killed runs leave

KILLED = """
import sys, time
from pathlib import Path
from course_lib import files
with files.atomic_write(Path(sys.argv[1], "o.jsonl")), files.atomic_folder(Path(sys.argv[1], "o")) as folder:
    with files.atomic_folder(folder), files.temporary_folder("course-test"):
        print("begun", flush=True)
        time.sleep(60)
"""


def test_the_next_run_removes_what_a_killed_one_left_but_nothing_of_a_running_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, temporary = tmp_path / "outputs", tmp_path / "temporary"
    for folder in (outputs, temporary):
        folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for name in (".o.other.tmp", ".o.jsonl.tmp", ".o.jsonl.x.01234567.tmp", ".oxjsonl.01234567.tmp"):
        (outputs / name).write_text("not of this run")
    others = names(outputs)

    def run_over() -> None:
        with files.atomic_write(outputs / "o.jsonl"), files.temporary_folder("course-test"):
            pass
        with files.atomic_folder(outputs / "o", ours=True):
            pass

    command = [sys.executable, "-c", KILLED, str(outputs)]
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(paths.REPOSITORY)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as running:
        assert running.stdout and running.stdout.readline() == b"begun\n"
        left = names(outputs) - others
        assert len(left) == 3 and sum(name.startswith("..o.") for name in left) == 1
        run_over()
        assert names(outputs) - others == left | {"o.jsonl", "o"} and len(names(temporary)) == 1
        running.kill()
    assert names(outputs) - others == left | {"o.jsonl", "o"}
    run_over()
    assert names(outputs) - others == {"o.jsonl", "o"} and names(temporary) == set()


# a full disk


def test_a_write_that_fails_names_the_file(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    with pytest.raises(OSError) as caught, files.atomic_write(tmp_path / "out") as file:
        np.save(file, np.zeros(9000))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(tmp_path / "out") and names(tmp_path) == set()


def test_an_error_names_the_product_and_not_its_temporary_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError) as caught, files.atomic_folder(Path("o")) as folder:
        (folder / "none" / "file").write_text("x")
    assert caught.value.filename == "o/none/file"
    with pytest.raises(CourseError, match="^o: No space left on device$"), files.atomic_folder(Path("o")):
        raise RuntimeError("I/O error: No space left on device (os error 28)")  # as safetensors has it


# inputs


def test_a_product_lies_outside_of_its_input_and_not_around_it(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for source, target in [("in", "link"), ("in", "link/deep/new"), ("in/deep/file", "link")]:
        with pytest.raises(UsageError, match=f"^-o {tmp_path / target}: is the input "):
            files.require_other(tmp_path / source, tmp_path / target)
    for source, target in [("in", "in2"), ("in/deep/file", "in/deep/file2"), ("none", "none/new")]:
        files.require_other(tmp_path / source, tmp_path / target)


@pytest.mark.parametrize("name", ["x" * 200, "x" * 255, "あ" * 85])
def test_a_name_may_have_255_bytes(tmp_path: Path, name: str) -> None:
    for text in ("old", "new"):
        with files.atomic_write(tmp_path / name) as file:
            file.write(text.encode())
    with files.work_folder(tmp_path / name) as folder, files.atomic_folder(folder / name) as inner:
        (inner / "a").touch()
    assert (tmp_path / name).read_text() == "new" and [path.name for path in tmp_path.iterdir()] == [name]


def test_a_temporary_folder_knows_its_name(tmp_path: Path) -> None:
    with files.atomic_folder(tmp_path / "gpt2", ours=True) as folder, files.atomic_folder(folder) as inner:
        assert folder.name != "gpt2"
        assert files.final_name(folder) == files.final_name(inner) == files.final_name(tmp_path / "gpt2") == "gpt2"
