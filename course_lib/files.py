"""Files that appear whole or not at all, and streams that open by their ending.

A product is written to a hidden temporary name beside its place and renamed when it is complete, so a killed run leaves
the earlier product as it was. This module knows nothing of manifests: that is workspace.py.
"""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from course_lib.errors import CourseError, UsageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 1 << 20  # bytes read at a time
STEP = 1 << 14  # bytes decompressed at a time: what a broken place costs at most
PRODUCT_MARKS = (
    "manifest.json",
    "preparation.json",
    "conversion.json",
    "encoding.json",
)  # files by which a folder is known as a product of the course
MAGIC = {".xz": b"\xfd7zXZ\x00", ".gz": b"\x1f\x8b", ".bz2": b"BZh"}


class TrailingBytes(OSError):
    """A compressed file goes on behind its last stream with something else."""


class _Streams(io.RawIOBase):
    """The content of an .xz or .bz2 file: of all its streams, one after the other, in constant memory.

    bz2.open and lzma.open stop without a word at the first byte that begins no stream, and lzma.open also at the zeros that xz allows
    between streams (padding, a multiple of 4 bytes: tukaani.org/xz/xz-file-format.txt, 2.2). This class takes the padding and
    raises TrailingBytes for everything else. Raises EOFError for a truncated file.
    """

    def __init__(self, kind: str, file: BinaryIO) -> None:
        self._kind, self._file = kind, file
        self._stream: Any = None
        self._left, self._begun = b"", False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        while self._stream or self._next():
            if not self._left and self._stream.needs_input:
                self._left = self._file.read(STEP)
                if not self._left:
                    raise EOFError(f"the last {self._kind} stream does not end")
            content = self._stream.decompress(self._left, min(len(view), STEP))
            self._left = b""
            if self._stream.eof:
                self._left, self._stream = self._stream.unused_data, None
            if content:
                view[: len(content)] = content
                return len(content)
        return 0

    def _next(self) -> bool:
        """Begins the next stream; False at the end of the file."""
        padding = 0
        while block := self._left or self._file.read(CHUNK):
            self._left = block.lstrip(b"\0") if self._begun and self._kind == "xz" else block
            padding += len(block) - len(self._left)
            if self._left:
                break
        if self._begun and (padding % 4 or not self._starts_stream()):
            at = self._file.tell() - len(self._left) - padding
            raise TrailingBytes(f"the {self._kind} data ends at byte {at}, but the file goes on; remove what follows")
        if not block:
            if not self._begun:
                raise EOFError(f"no {self._kind} data")
            return False
        self._begun = True
        self._stream = bz2.BZ2Decompressor() if self._kind == "bz2" else lzma.LZMADecompressor(lzma.FORMAT_XZ)
        return True

    def _starts_stream(self) -> bool:
        """Whether a stream follows, or the end of the file."""
        magic = MAGIC[f".{self._kind}"]
        if self._left and len(self._left) < len(magic):
            self._left += self._file.read(len(magic))
        return not self._left or self._left.startswith(magic)


def _streams(kind: str, file: BinaryIO) -> io.BufferedReader:
    return io.BufferedReader(_Streams(kind, file), CHUNK)


OPENERS: dict[str, Callable[[Any], Any]] = {
    ".bz2": partial(_streams, "bz2"),
    ".xz": partial(_streams, "xz"),
    ".gz": gzip.open,
}  # a path's ending → what reads the decompressed bytes of an open file; an end that is not the file's raises an error


def require_file(path: Path) -> Path:
    """Returns `path` if it is a readable, non-empty file; raises CourseError naming what it is instead."""
    if path.is_dir():
        raise CourseError(f"{path}: is a directory, expected a file")
    if not path.exists():
        raise CourseError(f"{path}: no such file")
    if path.is_file() and path.stat().st_size == 0:
        raise CourseError(f"{path}: the file is empty")
    return path


def open_binary(path: Path) -> BinaryIO:
    """Opens a file for reading bytes, decompressing .bz2, .xz and .gz on the way."""
    require_file(path)
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path))
    file = path.open("rb")
    return cast(BinaryIO, OPENERS[path.suffix](file)) if path.suffix in OPENERS else file


def sha256(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _temporary(target: Path) -> Path:
    """A hidden name beside `target`, unique to this process, so that the rename stays on one file system."""
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


@contextmanager
def atomic_write(target: Path, keep_partial: bool = False) -> Iterator[IO[bytes]]:
    """Yields a binary file that becomes `target` when the block ends without an error.

    After an error `target` is untouched. With keep_partial, what was written before a CourseError stays as
    `<target>.partial`, and the error's line says so.
    """
    if target.is_dir():
        raise CourseError(f"{target}: is a directory, expected a name for a file")
    temporary = _temporary(target)
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except CourseError as error:
        if keep_partial and temporary.exists() and temporary.stat().st_size:
            partial = target.with_name(target.name + ".partial")
            os.replace(temporary, partial)
            raise type(error)(f"{error}; what came before it is kept in {partial}") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def require_other(source: Path, target: Path) -> None:
    """Raises UsageError if a product would replace its own input."""
    if target.exists() and source.exists() and target.samefile(source):
        raise UsageError(f"-o {target}: is the input itself, which would be lost")


def inner_suffix(path: Path) -> str:
    """The ending below a compression: '.txt' for a.txt and a.txt.xz."""
    return Path(path.stem).suffix if path.suffix in OPENERS else path.suffix


@contextmanager
def atomic_folder(target: Path, ours: bool = False) -> Iterator[Path]:
    """Yields an empty folder that replaces `target` when the block ends without an error.

    Raises UsageError at once for a folder that holds something else than an earlier product: nobody's files are replaced.
    `ours` says that the place belongs to the course whatever is in it.
    """
    target = target.absolute()
    if target.exists() and not target.is_dir():
        raise CourseError(f"{target}: is a file, expected a name for a folder")
    if (
        not ours
        and target.is_dir()
        and any(target.iterdir())
        and not any((target / name).exists() for name in PRODUCT_MARKS)
    ):
        raise UsageError(f"-o {target}: the folder holds other files; allowed: a new name, or a product to replace")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        temporary.chmod(0o755)  # mkdtemp makes it private
        yield temporary
        old = _temporary(target)
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(temporary, target)
        except OSError:
            if old.exists():
                os.replace(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def human_size(size: float) -> str:
    """1234567 → '1.2 MB' (decimal units)."""
    for unit in ("B", "kB", "MB", "GB"):
        if round(abs(size), 1) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
