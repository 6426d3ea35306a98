"""Files that appear whole or not at all, and streams that open by their ending."""

import bz2
import gzip
import lzma
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from course_lib import files
from course_lib.errors import CourseError, UsageError
from hypothesis import given
from hypothesis import strategies as st


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


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


@pytest.mark.parametrize("error", [CourseError("line 3"), UsageError("key"), ValueError("bug"), KeyboardInterrupt()])
def test_an_error_leaves_the_earlier_file(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "out.txt"
    target.write_bytes(b"earlier")
    with pytest.raises(type(error)) as caught, files.atomic_write(target) as file:
        file.write(b"half")
        raise error
    assert caught.value is error
    assert target.read_bytes() == b"earlier"
    assert names(tmp_path) == {"out.txt"}


@pytest.mark.parametrize("kind", [CourseError, UsageError])
def test_keep_partial_keeps_what_came_before_bad_data_and_says_so(tmp_path: Path, kind: type[CourseError]) -> None:
    target = tmp_path / "out.txt"
    target.write_bytes(b"earlier")
    with (
        pytest.raises(kind, match=r"^line 3 is bad; what came before it is kept in .*out\.txt\.partial$") as caught,
        files.atomic_write(target, keep_partial=True) as file,
    ):
        file.write(b"first two lines")
        raise kind("line 3 is bad")
    assert type(caught.value) is kind
    assert (target.read_bytes(), (tmp_path / "out.txt.partial").read_bytes()) == (b"earlier", b"first two lines")
    assert names(tmp_path) == {"out.txt", "out.txt.partial"}


@pytest.mark.parametrize(
    ("written", "error"), [(b"", CourseError("bad")), (b"half", KeyboardInterrupt()), (b"half", ValueError("bug"))]
)
def test_keep_partial_keeps_nothing_of_an_empty_or_interrupted_file(
    tmp_path: Path, written: bytes, error: BaseException
) -> None:
    with pytest.raises(type(error)) as caught, files.atomic_write(tmp_path / "out.txt", keep_partial=True) as file:
        file.write(written)
        raise error
    assert caught.value is error
    assert names(tmp_path) == set()


def test_a_folder_is_no_place_for_a_file_nor_a_file_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(CourseError, match="is a directory, expected a name for a file$"), files.atomic_write(tmp_path):
        pass
    with (
        pytest.raises(CourseError, match="file: is a file, expected a name for a folder$"),
        files.atomic_folder(tmp_path / "file"),
    ):
        pass
    assert names(tmp_path) == {"file"}
    assert (tmp_path / "file").read_bytes() == b"mine"


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


@pytest.mark.parametrize("error", [CourseError("bad"), ValueError("bug"), KeyboardInterrupt()])
def test_an_error_leaves_the_earlier_folder(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "product"
    target.mkdir()
    (target / "earlier").write_text("x")
    with pytest.raises(type(error)) as caught, files.atomic_folder(target, ours=True) as folder:
        (folder / "half").write_text("x")
        raise error
    assert caught.value is error
    assert names(target) == {"earlier"}
    assert names(tmp_path) == {"product"}


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".gz": gzip.compress,
    ".txt": bytes,
    "": bytes,
}


@pytest.mark.parametrize("ending", PACK)
def test_a_stream_opens_by_its_ending(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"text{ending}"
    path.write_bytes(PACK[ending](b"one\ntwo\n") * 2)  # two members, as multistream dumps have
    with files.open_binary(path) as file:
        assert file.readlines() == [b"one\n", b"two\n"] * 2


@pytest.mark.parametrize("ending", [".bz2", ".xz", ".gz"])
@pytest.mark.parametrize("tail", [b"x", b"garbage that is longer than any header", b"\0\0x"])
def test_bytes_behind_the_last_stream_are_refused_after_its_content(tmp_path: Path, ending: str, tail: bytes) -> None:
    path = tmp_path / f"text{ending}"
    sound = PACK[ending](b"one\ntwo\n")
    path.write_bytes(sound + tail)
    with files.open_binary(path) as file:
        assert (file.readline(), file.readline()) == (b"one\n", b"two\n")
        with pytest.raises(
            OSError, match=f"ends at byte {len(sound)}, but the file goes on|Not a gzipped file"
        ) as caught:
            file.read()
    assert isinstance(caught.value, files.TrailingBytes) or ending == ".gz"


def test_the_padding_of_xz_is_taken_between_streams_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "text.xz"
    stream = lzma.compress(b"one\n")
    path.write_bytes(stream + bytes(8) + stream + bytes(2_000_000) + stream + bytes(4))
    with files.open_binary(path) as file:
        assert file.read() == b"one\n" * 3
    for padding in (1, 5, 2_000_001):
        path.write_bytes(stream + bytes(padding))
        with files.open_binary(path) as file, pytest.raises(files.TrailingBytes, match=f"byte {len(stream)},"):
            file.read()


@given(st.lists(st.binary(max_size=50), min_size=1), st.sampled_from([".bz2", ".xz"]), st.integers(1, 40))
def test_streams_in_a_row_are_one_text(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], ending: str, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / f"parts{ending}"
    path.write_bytes(b"".join(map(PACK[ending], parts)))
    with files.open_binary(path) as file:
        assert b"".join(iter(lambda: file.read(size), b"")) == b"".join(parts)


def test_what_is_no_readable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.bz2").touch()
    for name, wanted in {
        "": "is a directory, expected a file",
        "none": "no such file",
        "empty.bz2": "the file is empty",
    }.items():
        with pytest.raises(CourseError) as caught:
            files.open_binary(tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name}: {wanted}"
    os.mkfifo(tmp_path / "pipe")
    assert files.require_file(tmp_path / "pipe") == tmp_path / "pipe"  # a stream has no size


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert (
        files.sha256(tmp_path / "x") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )  # FIPS 180-2's example


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"),
     (7.5e9, "7.5 GB"), (1.5e12, "1.5 TB"), (2e15, "2000.0 TB"), (-1500, "-1.5 kB")],
)  # fmt: skip
def test_human_size(size: float, shown: str) -> None:
    assert files.human_size(size) == shown


@given(st.integers(0, 10**15))
def test_human_size_is_right_to_its_last_digit(size: int) -> None:
    number, unit = files.human_size(size).split()
    scale = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}[unit]
    assert float(number) < 1000 or unit == "TB"
    assert abs(float(number) * scale - size) <= scale * 0.0501


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
    assert [path.name for path in (tmp_path / "product").iterdir()] == ["new"]


def test_a_product_may_not_replace_its_input(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "a.jsonl")
    with pytest.raises(UsageError, match="is the input itself"):
        files.require_other(tmp_path / "a.jsonl", tmp_path / "link")
    files.require_other(tmp_path / "a.jsonl", tmp_path / "b.jsonl")


def test_inner_suffix() -> None:
    endings = {"a.txt": ".txt", "a.txt.xz": ".txt", "a.txt.jsonl": ".jsonl", "a.xz": "", "a": ""}
    assert {name: files.inner_suffix(Path(name)) for name in endings} == endings
