"""Atomic writing of files and folders, and reading of compressed files.

What is written has a hidden temporary name next to its target until it is complete, so that a killed run leaves the
earlier file or folder unchanged.
"""

import bz2
import errno
import fcntl
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import secrets
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from course_lib.errors import CourseError, UsageError
from course_lib.language.words import mark, tr

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Bytes read, and decompressed, at a time.
CHUNK = 1 << 20
# A folder that contains one of these files is a course product.
PRODUCT_MARKS = ("manifest.json", "preparation.json", "conversion.json", "encoding.json")
FULL = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
# Makes a folder that only its owner reads.
PRIVATE = partial(Path.mkdir, mode=0o700)
# Stands for standard output as the target of a text.
STANDARD_OUTPUT = Path("-")
# Paths of devices; /dev/shm is a disk in memory.
DEVICE = re.compile("/(dev(?!/shm)|proc)/")
MAGIC = {".xz": b"\xfd7zXZ\x00", ".gz": b"\x1f\x8b", ".bz2": b"BZh"}


def _streams(suffix: str, file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of all streams in a compressed file.

    bz2.open and lzma.open stop without an error at the first byte that does not begin a stream. lzma.open also stops at
    the zero bytes that xz allows between streams (padding: tukaani.org/xz/xz-file-format.txt, 2.2). Here the padding is
    skipped; other bytes raise OSError, and a truncated file raises EOFError.
    """
    if suffix == ".gz":
        with gzip.open(file) as members:
            yield from iter(partial(members.read1, CHUNK), b"")
        return
    held, is_first = file.read(CHUNK), True
    while held or is_first:
        if not is_first:
            held = held.lstrip(b"\0" if suffix == ".xz" else b"")
            if not held:
                held = file.read(CHUNK)
                continue
            held += file.read(len(MAGIC[suffix]))
            if not held.startswith(MAGIC[suffix]):
                at = file.tell() - len(held)
                raise OSError(f"it ends at byte {at}, but the file goes on; remove what follows")
        stream = bz2.BZ2Decompressor() if suffix == ".bz2" else lzma.LZMADecompressor(lzma.FORMAT_XZ)
        while not stream.eof:
            if stream.needs_input and not (held := held or file.read(CHUNK)):
                raise EOFError("the last stream does not end")
            content, held = stream.decompress(held, CHUNK), b""
            if content:
                yield content
        held, is_first = stream.unused_data or file.read(CHUNK), False


class _Decompressed(io.RawIOBase):
    """The content of a compressed file as a file. Damaged data is a CourseError, which names the file."""

    def __init__(self, suffix: str, file: BinaryIO) -> None:
        self._suffix, self._file, self._chunks, self._held = suffix, file, _streams(suffix, file), b""

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        try:
            content = self._held or next(self._chunks, b"")
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            # An error number means that the disk or the system failed, not that the content is bad.
            if isinstance(error, OSError) and error.errno:
                raise
            kind = f"{'truncated' if isinstance(error, EOFError) else 'broken'} {self._suffix[1:]} data"
            raise CourseError(f"{self._file.name}: {kind} near byte {self._file.tell()}: {error}") from None
        size = min(len(view), len(content))
        view[:size], self._held = content[:size], content[size:]
        return size


def _reader(suffix: str, file: BinaryIO) -> io.BufferedReader:
    return io.BufferedReader(_Decompressed(suffix, file), CHUNK)


# suffix → function that takes an open compressed file and returns a reader for its decompressed content.
OPENERS: dict[str, Callable[[Any], Any]] = {suffix: partial(_reader, suffix) for suffix in MAGIC}


def require_file(path: Path) -> Path:
    """Return `path` if it exists and is neither a folder nor an empty file; otherwise raise CourseError."""
    if path.is_dir():
        raise CourseError(tr("{path}: is a directory, expected a file", path=path))
    if not path.exists():
        raise CourseError(tr("{path}: no such file", path=path))
    if path.is_file() and path.stat().st_size == 0:
        raise CourseError(tr("{path}: the file is empty", path=path))
    return path


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading bytes, decompressing .bz2, .xz and .gz files."""
    file = require_file(path).open("rb")
    return cast(BinaryIO, OPENERS[path.suffix](file)) if path.suffix in OPENERS else file


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file. Raises CourseError if it contains anything else."""
    try:
        content = json.loads(require_file(path).read_text(encoding="utf8"))
    # not JSON, not UTF-8, or brackets nested too deeply
    except (ValueError, RecursionError) as error:
        raise CourseError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(content, dict):
        raise CourseError(f"{path}: expected a JSON object, found {str(content)[:40]}")
    return content


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON with a trailing newline. Paths are written as strings."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf8")


def sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _naming(path: Path, place: Path) -> Iterator[None]:
    """Name `path` in errors from the block, which writes the temporary file of `place`.

    A full disk that a library reports by an exception of its own becomes a CourseError.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str):
            error.filename = re.sub(f"^.*{_temporary_names(place)}", lambda _: str(path), error.filename)
        # NumPy reports a short write without an error number.
        elif error.filename is None and (error.errno or "requested and" in str(error)):
            error.filename = str(path)
        raise
    except CourseError:
        raise
    except Exception as error:
        if reason := next((reason for reason in FULL if reason in str(error)), None):
            raise CourseError(f"{path}: {reason}") from error
        raise


def require_replaceable(path: Path) -> Path:
    """Return `path` if it may become a product; raise UsageError if it is a device, a pipe or a link to one.

    A rename would replace the device itself, and /dev/stdout would lead to the file behind a redirection.
    """
    names = [str(path.absolute()), os.path.realpath(path), str(path.readlink()) if path.is_symlink() else ""]
    special = path.exists() and not path.is_file() and not path.is_dir()
    if special or any(map(DEVICE.match, names)):
        raise UsageError(f"-o {path}: is a device or pipe; allowed: a path, or - where the product is one text")
    return path


def behind_links(path: Path) -> Path:
    """Return the target of `path` if it is a symbolic link, otherwise `path`."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _hidden(target: Path) -> Path:
    """Return a random hidden name next to `target`, on the same file system."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")


def final_name(path: Path) -> str:
    """Return the name that a file or folder will have: `gpt2` for the temporary `.gpt2.8cadf962.tmp`."""
    return re.sub(r"^\.+(.+?)(\.[0-9a-f]{8}\.tmp)+$", r"\1", path.name)


def _temporary_names(target: Path) -> str:
    """Return a regular expression for the temporary names of `target`, also of a folder written inside another one."""
    return rf"\.+{re.escape(target.name)}(\.[0-9a-f]{{8}}\.tmp)+"


@contextmanager
def _held(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Yield a new temporary file or folder next to `target`, locked while the run lives, and remove it at the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target)
    temporary = _hidden(target)
    make(temporary)
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        # On a file system without locks, remove_leftovers cannot lock files either, so it removes nothing.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield temporary
    finally:
        _remove(temporary)
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_leftovers(target: Path) -> None:
    """Remove the temporary files and folders that killed runs left next to `target`, which nobody holds a lock on."""
    candidates = []
    # The folder may be writable but not listable.
    with suppress(OSError):
        candidates = [path for path in target.parent.iterdir() if re.fullmatch(_temporary_names(target), path.name)]
    for path in candidates:
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(descriptor)


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """Yield an empty folder in the system's temporary folder, and remove it and those of killed runs."""
    with _held(Path(tempfile.gettempdir(), name), PRIVATE) as folder:
        yield folder


@contextmanager
def work_folder(target: Path) -> Iterator[Path]:
    """Yield an empty hidden folder next to `target`, where a disk has room for it, and remove it at the end."""
    if target == STANDARD_OUTPUT:
        target = Path(tempfile.gettempdir(), "course")
    resolved = behind_links(target)
    with _naming(target, resolved), _held(resolved.with_name(f"{resolved.name}.work"), PRIVATE) as folder:
        yield folder


@contextmanager
def atomic_write(target: Path) -> Iterator[IO[bytes]]:
    """Yield a binary file that replaces `target`, or what it links to, when the block ends without an error.

    STANDARD_OUTPUT is written directly. Raises UsageError if `target` is a device or pipe.
    """
    if target == STANDARD_OUTPUT:
        with open(os.dup(sys.stdout.fileno()), "wb") as file:
            yield file
        return
    if target.is_dir():
        raise CourseError(f"{target}: is a directory, expected a name for a file")
    resolved = behind_links(require_replaceable(target))
    with _naming(target, resolved), _held(resolved, lambda path: path.open("xb").close()) as temporary:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, resolved)


def link_or_copy(source: Path, target: Path) -> None:
    """Create `target` as a hard link to a file, or as a copy on a disk without hard links, such as a Google Drive."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def require_other(source: Path, target: Path) -> None:
    """Raise UsageError if `target` is the input `source`, contains it, or is inside it."""
    read, written = source.resolve(), target.resolve()
    if source.exists() and (read.is_relative_to(written) or written.is_relative_to(read)):
        raise UsageError(f"-o {target}: is the input {source}, holds it or is inside it; allowed: a path outside it")


def inner_suffix(path: Path) -> str:
    """Return the suffix of a file name, ignoring any compression suffix: '.txt' for a.txt and for a.txt.xz."""
    return Path(path.stem).suffix if path.suffix in OPENERS else path.suffix


@contextmanager
def atomic_folder(target: Path, ours: bool = False) -> Iterator[Path]:
    """Yield an empty temporary folder, which replaces `target`, or what it links to, when the block ends without error.

    Raises UsageError, before the block runs, if `target` is a device or pipe, or a folder with other files than a
    product's, unless it is `ours`: a path that only the course writes.
    """
    if require_replaceable(target).exists() and not target.is_dir():
        raise CourseError(tr("{target}: is a file, expected a name for a folder", target=target))
    is_product = ours or any((target / name).exists() for name in PRODUCT_MARKS)
    if not is_product and target.is_dir() and any(target.iterdir()):
        message = mark("-o {target}: the folder holds other files; allowed: a new name, or a product to replace")
        raise UsageError(tr(message, target=target))
    resolved = behind_links(target).absolute()
    with _naming(target, resolved), _held(resolved, Path.mkdir) as temporary:
        yield temporary
        old = _hidden(resolved)
        if resolved.exists():
            os.replace(resolved, old)
        try:
            os.replace(temporary, resolved)
        except OSError:
            if old.exists():
                os.replace(old, resolved)
            raise
        shutil.rmtree(old, ignore_errors=True)


def human_size(size: float) -> str:
    """Format a size in bytes with a decimal unit: 1234567 → '1.2 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if round(abs(size), 1) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
