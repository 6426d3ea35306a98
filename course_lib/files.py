"""Files that appear whole or not at all, and streams that open by their ending.

A product is written to a hidden temporary name beside its place and renamed when it is complete, so a killed run leaves
the earlier product as it was. This module knows nothing of manifests: that is workspace.py.
"""

import bz2
import errno
import fcntl
import gzip
import io
import json
import lzma
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
FULL = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")
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


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises CourseError naming the file for anything else."""
    try:
        content = json.loads(require_file(path).read_text(encoding="utf8"))
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, brackets without end
        raise CourseError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(content, dict):
        said = json.dumps(content, ensure_ascii=False)[:40]
        raise CourseError(f"{path}: holds {said}, expected a JSON object")
    return content


def sha256(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    # It loads OpenSSL, 3.5 MB that reading and writing files do not need.
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def naming(path: Path, place: Path | None = None) -> Iterator[None]:
    """Adds `path` to errors of the block that name no file, such as those of a full disk or of a read that fails.

    With `place`, the block writes `path` under a temporary name beside `place`: errors that name it then name `path`, and
    a full disk that a library reports in its own way becomes a CourseError.
    """
    try:
        yield
    except OSError as error:
        if place and isinstance(error.filename, str):
            temporary = re.escape(f"{place.absolute().parent}{os.sep}") + _temporary_names(place)
            full = str(Path(error.filename).absolute())
            if found := re.match(temporary, full):
                error.filename = str(path) + full[found.end() :]
        # numpy reports a short write without an error number
        elif error.filename is None and (error.errno or (place and SHORT_WRITE.search(str(error)))):
            error.filename = str(path)
        raise
    except CourseError:
        raise
    except Exception as error:
        reason = next((reason for reason in FULL if reason in str(error)), None)
        if place is None or reason is None:
            raise
        raise CourseError(f"{path}: {reason}") from error


def is_stream(path: Path) -> bool:
    """Whether `path` is a device, pipe or socket, or a link to one: nothing that a rename may replace."""
    return path.exists() and not path.is_file() and not path.is_dir()


def behind_links(path: Path) -> Path:
    """The place that `path` names if it is a symbolic link, else `path`. Raises CourseError for links in a circle."""
    place = Path(os.path.realpath(path)) if path.is_symlink() else path
    if place.is_symlink():
        raise CourseError(f"{path}: symbolic links in a circle")
    return place


def _hidden(target: Path) -> Path:
    """A new hidden name beside `target`, so that the rename stays on one file system."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")


def _temporary_names(target: Path) -> str:
    """Pattern of the hidden names beside `target`, and of those beside these: one product may write another in its folder."""
    return rf"\.+{re.escape(target.name)}(\.[0-9a-f]{{8}}\.tmp)+"


@contextmanager
def _held(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Yields a new temporary file or folder beside `target`, locked, and removes it at the end.

    First removes those that killed runs left. The system releases a lock when its process ends, however it ends: so a
    lock tells the files of a run at work from those of a killed one.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target)
    temporary, descriptor = _make(target, make)
    try:
        yield temporary
    finally:
        _remove(temporary)
        os.close(descriptor)


def _make(target: Path, make: Callable[[Path], None]) -> tuple[Path, int]:
    """Makes a hidden file or folder beside `target`; returns it with the descriptor that holds its lock."""
    while True:
        temporary = _hidden(target)
        make(temporary)
        # the clean-up of another run may remove it before it is locked
        with suppress(FileNotFoundError):
            descriptor = _lock(temporary)
            if temporary.exists():
                return temporary, descriptor
            os.close(descriptor)


def _lock(path: Path) -> int:
    """Locks a file or folder; returns the descriptor that holds the lock."""
    descriptor = os.open(path, os.O_RDONLY)
    # a file system without locks: there, nothing can be removed either
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def remove_leftovers(target: Path) -> None:
    """Removes the temporary files and folders that killed runs left beside `target`. Those of running processes stay."""
    found = []
    # a folder that may be written but not listed
    with suppress(OSError):
        found = [path for path in target.parent.iterdir() if re.fullmatch(_temporary_names(target), path.name)]
    for path in found:
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(descriptor)


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """Yields an empty folder among the system's temporary files, and removes it at the end.

    First removes those that killed runs left under the same `name`.
    """
    with _held(Path(tempfile.gettempdir(), name), lambda path: path.mkdir(0o700)) as folder:
        yield folder


@contextmanager
def atomic_write(target: Path, keep_partial: bool = False) -> Iterator[IO[bytes]]:
    """Yields a binary file that becomes `target` when the block ends without an error.

    After an error `target` is untouched. With keep_partial, what was written before a CourseError stays as
    `<target>.partial`, and the error's line says so. A symbolic link stays: the file that it names is replaced.
    A device or pipe is written through, as it cannot be replaced.
    """
    if target.is_dir():
        raise CourseError(f"{target}: is a directory, expected a name for a file")
    if is_stream(target):
        with _stream(target) as file:
            yield file
        return
    place = behind_links(target)
    with naming(target, place), _held(place, lambda path: path.open("xb").close()) as temporary:
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, place)
        except CourseError as error:
            if keep_partial and temporary.exists() and temporary.stat().st_size:
                partial = place.with_name(place.name + ".partial")
                os.replace(temporary, partial)
                raise type(error)(f"{error}; what came before it is kept in {partial}") from error
            raise


@contextmanager
def _stream(target: Path) -> Iterator[IO[bytes]]:
    """A device or pipe to write through. Raises CourseError for a disk, and for a pipe whose reader ends too early."""
    if target.is_block_device():
        raise CourseError(f"{target}: is a disk, expected a name for a file")
    try:
        with naming(target), open(target, "wb") as file:
            yield file
    except BrokenPipeError:
        raise CourseError(f"{target}: the reader closed the pipe before the end") from None


def require_regular(path: Path) -> None:
    """Raises CourseError for a device or pipe, where a product is read again and needs a file."""
    if is_stream(path):
        raise CourseError(f"{path}: is a device or pipe, expected a name for a file")


def require_other(source: Path, target: Path) -> None:
    """Raises UsageError if a product would replace its own input, or the folder around it, or lie inside an input folder."""
    if not source.exists():
        return
    read, written = source.resolve(), target.resolve()
    if target.exists() and target.samefile(source):
        raise UsageError(f"-o {target}: is the input itself, which would be lost")
    if read.is_relative_to(written):
        raise UsageError(f"-o {target}: holds the input {source}, which would be lost")
    if written.is_relative_to(read):
        raise UsageError(f"-o {target}: is inside the input {source}; allowed: a place outside of it")


def inner_suffix(path: Path) -> str:
    """The ending below a compression: '.txt' for a.txt and a.txt.xz."""
    return Path(path.stem).suffix if path.suffix in OPENERS else path.suffix


@contextmanager
def atomic_folder(target: Path, ours: bool = False) -> Iterator[Path]:
    """Yields an empty folder that replaces `target` when the block ends without an error.

    A symbolic link stays: the folder that it names is replaced. Raises UsageError at once for a folder that holds something
    else than an earlier product: nobody's files are replaced. `ours` says that the place belongs to the course whatever is in it.
    """
    if target.exists() and not target.is_dir():
        kind = "device or pipe" if is_stream(target) else "file"
        raise CourseError(f"{target}: is a {kind}, expected a name for a folder")
    if (
        not ours
        and target.is_dir()
        and any(target.iterdir())
        and not any((target / name).exists() for name in PRODUCT_MARKS)
    ):
        raise UsageError(f"-o {target}: the folder holds other files; allowed: a new name, or a product to replace")
    place = behind_links(target).absolute()
    with naming(target, place), _held(place, Path.mkdir) as temporary:
        yield temporary
        old = _hidden(place)
        if place.exists():
            os.replace(place, old)
        try:
            os.replace(temporary, place)
        except OSError:
            if old.exists():
                os.replace(old, place)
            raise
        shutil.rmtree(old, ignore_errors=True)


def human_size(size: float) -> str:
    """1234567 → '1.2 MB' (decimal units)."""
    for unit in ("B", "kB", "MB", "GB"):
        if round(abs(size), 1) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
