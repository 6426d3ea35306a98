"""Files that appear whole or not at all, and streams that open by their ending.

A product is written to a hidden temporary name beside its place and renamed when it is complete, so a killed run leaves
the earlier product as it was. This module knows nothing of manifests: that is workspace.py.
"""

import bz2
import gzip
import lzma
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from course_lib.errors import CourseError, UsageError

CHUNK = 1 << 20  # bytes read at a time
PRODUCT_MARKS = (
    "manifest.json",
    "preparation.json",
    "conversion.json",
    "encoding.json",
)  # files by which a folder is known as a product of the course
OPENERS: dict[str, Callable[[Path, str], Any]] = {".bz2": bz2.open, ".xz": lzma.open, ".gz": gzip.open}


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
    return cast(BinaryIO, OPENERS.get(path.suffix, open)(path, "rb"))


def sha256(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    # It loads OpenSSL, 3.5 MB that reading and writing files do not need.
    import hashlib

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
