"""Atomic writing of files and folders, and reading of compressed files.

What is written has a hidden temporary name next to its target until it is complete, so that a killed run leaves the
earlier file or folder unchanged. A folder then gets a marker file that lists what is in it: whatever a user adds is not
listed, and is never removed.
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
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from course_lib import unmarked
from course_lib.errors import CourseError, UsageError
from course_lib.language.words import tr, tr_noop

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Bytes read, and decompressed, at a time.
CHUNK = 1 << 20
# The marker file: lists the files and folders that the course wrote into a folder.
FILE_LIST = ".course-product.json"
# What Python writes beside a module that it imports, such as a Triton repository's model.py.
CACHED = re.compile(r"(.*/)?__pycache__/([^/]+\.pyc)?")
# Errors of a file system that cannot do something, as opposed to one that fails to do it.
UNABLE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
# renameat2(2): the current folder for relative paths, and the flag for exchanging two paths.
AT_FDCWD, RENAME_EXCHANGE = -100, 2
# Bytes of a name to which the parts of temporary names can be added, also of a file in a folder of such a name.
LONGEST_STEM = 200
# How messages call the types of JSON values.
JSON_NAMES = {bool: "true or false", int: "a whole number", str: "a text", dict: "an object", list: "a list"}
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
    # Compressed bytes that are read, but not decompressed yet.
    buffer, is_first = file.read(CHUNK), True
    while buffer or is_first:
        if not is_first:
            buffer = buffer.lstrip(b"\0" if suffix == ".xz" else b"")
            if not buffer:
                buffer = file.read(CHUNK)
                continue
            buffer += file.read(len(MAGIC[suffix]))
            if not buffer.startswith(MAGIC[suffix]):
                position = file.tell() - len(buffer)
                raise OSError(f"it ends at byte {position}, but the file goes on; remove what follows")
        stream = bz2.BZ2Decompressor() if suffix == ".bz2" else lzma.LZMADecompressor(lzma.FORMAT_XZ)
        while not stream.eof:
            if stream.needs_input and not buffer:
                buffer = file.read(CHUNK)
                if not buffer:
                    raise EOFError("the last stream does not end")
            content, buffer = stream.decompress(buffer, CHUNK), b""
            if content:
                yield content
        buffer, is_first = stream.unused_data or file.read(CHUNK), False


class _Decompressed(io.RawIOBase):
    """The content of a compressed file as a file. Damaged data is a CourseError, which names the file."""

    def __init__(self, suffix: str, file: BinaryIO) -> None:
        self._suffix, self._file, self._chunks = suffix, file, _streams(suffix, file)
        # Content that is decompressed, but not read yet.
        self._unread = b""

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        try:
            content = self._unread or next(self._chunks, b"")
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            # An error number means that the disk or the system failed, not that the content is bad.
            if isinstance(error, OSError) and error.errno:
                raise
            kind = f"{'truncated' if isinstance(error, EOFError) else 'broken'} {self._suffix[1:]} data"
            raise CourseError(f"{self._file.name}: {kind} near byte {self._file.tell()}: {error}") from None
        size = min(len(view), len(content))
        view[:size], self._unread = content[:size], content[size:]
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


def read_record(path: Path, required: Mapping[str, type], optional: Mapping[str, type] | None = None) -> dict[str, Any]:
    """Read a JSON object that the course wrote; raise CourseError if a key is missing or has a value of another type.

    `optional` are keys that may be missing or null.
    """
    content = read_json(path)
    for key, kind in (dict(required) | dict(optional or {})).items():
        value = content.get(key)
        if value is None and key not in required:
            continue
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            problem = f"found {json.dumps(value, ensure_ascii=False)[:40]}" if key in content else "the key is missing"
            raise CourseError(f"{path}: {key}: {problem}; allowed: {JSON_NAMES[kind]}")
    return content


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON with a trailing newline. Paths are written as strings."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf8")


def sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _naming(path: Path, target: Path) -> Iterator[None]:
    """Name `path` in errors from the block, which writes the temporary file of `target`: `path` without links.

    A full disk that a library reports by its own exception becomes a CourseError.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str):
            error.filename = re.sub(f"^.*{_temporary_names(target)}", lambda _: str(path), error.filename)
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


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name a file in errors from the block that writes it, such as those of a full disk."""
    with _naming(path, path):
        yield


def require_replaceable(path: Path) -> Path:
    """Return `path` if it may become a product; raise UsageError if it is a device, a pipe, a link to one, or a mount.

    A rename would replace the device itself, and /dev/stdout would lead to the file behind a redirection. What is
    mounted at a path cannot be renamed.
    """
    target = behind_links(path)
    names = [str(path.absolute()), str(target), str(path.readlink()) if path.is_symlink() else ""]
    special = path.exists() and not path.is_file() and not path.is_dir()
    if special or any(map(DEVICE.match, names)):
        raise UsageError(f"-o {path}: is a device or pipe; allowed: a path, or - where the product is one text")
    if target.is_symlink():
        raise UsageError(f"-o {path}: is a link that leads back to itself; allowed: a path")
    if target.exists() and is_mount(target):
        raise UsageError(f"-o {path}: is a mount point, which cannot be replaced; allowed: a path inside it")
    return path


def is_mount(path: Path) -> bool:
    """Return whether something is mounted at a path without links, also a folder of the same file system."""
    if path.is_mount():
        return True
    try:
        # The fifth field is the path, with white space in octal (proc_pid_mountinfo(5)).
        mounts = [line.split(b" ")[4] for line in Path("/proc/self/mountinfo").read_bytes().splitlines()]
    except OSError:
        return False
    return os.fsencode(path) in (
        re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]), each) for each in mounts
    )


def behind_links(path: Path) -> Path:
    """Return the absolute path that a path leads to, without links and without `..`."""
    return Path(os.path.realpath(path))


def _hidden(target: Path, suffix: str = ".tmp") -> Path:
    """Return a random hidden name next to `target`, on the same file system."""
    return target.with_name(f".{_stem(target)}.{secrets.token_hex(4)}{suffix}")


def _stem(target: Path) -> str:
    """Return the name of `target` for its temporary names, which are longer and may have at most 255 bytes."""
    name = os.fsencode(target.name)
    return target.name if len(name) <= LONGEST_STEM else hashlib.sha256(name).hexdigest()


def final_name(path: Path) -> str:
    """Return the name that a file or folder will have: `gpt2` for the temporary `.gpt2.8cadf962.tmp`."""
    return re.sub(r"^\.+(.+?)(\.[0-9a-f]{8}\.tmp)+$", r"\1", path.name)


def _temporary_names(target: Path) -> str:
    """Return a regular expression for the temporary names of `target`, also of a folder written inside another one."""
    return rf"\.+{re.escape(_stem(target))}(\.[0-9a-f]{{8}}\.tmp)+"


@contextmanager
def _locked_temporary(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
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
    """Clear up what killed runs left next to `target`, on which nobody holds a lock.

    Temporary files and folders are removed. A folder that was to be replaced, but is not yet, gets its name back.
    """
    candidates = []
    # The folder may be writable but not listable.
    with suppress(OSError):
        pattern = re.compile(rf"{_temporary_names(target)}|\.{re.escape(_stem(target))}\.[0-9a-f]{{8}}\.old")
        candidates = [path for path in target.parent.iterdir() if pattern.fullmatch(path.name)]
    for path in candidates:
        with suppress(OSError), _lock(path):
            if path.suffix == ".old":
                _restore(path, target)
            else:
                _remove(path)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file or folder in the block. Raises OSError if another process holds it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether a running process holds the lock of a temporary file or folder."""
    try:
        with _lock(path):
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def _restore(old: Path, target: Path) -> None:
    """Give a folder its name back, or remove it if its successor has that name; anything else there is not touched."""
    if (target / FILE_LIST).is_file():
        _remove(old)
    else:
        # A rename replaces a folder only if it is empty.
        os.replace(old, target)


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """Yield an empty folder in the system's temporary folder, and remove it and those of killed runs."""
    with _locked_temporary(Path(tempfile.gettempdir(), name), PRIVATE) as folder:
        yield folder


def user_folder(name: str) -> Path:
    """Return a folder in the system's temporary folder that belongs to this user and that nobody else can enter.

    Other users may make files in the system's temporary folder, also with a name that the course would use.
    """
    folder = Path(tempfile.gettempdir(), f"{name}-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise CourseError(f"{folder}: belongs to another user; remove it, or set TMPDIR to a folder of your own")
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)
    return folder


@contextmanager
def work_folder(target: Path) -> Iterator[Path]:
    """Yield an empty hidden folder next to `target`, on the disk that has space for it, and remove it at the end."""
    if target == STANDARD_OUTPUT:
        target = Path(tempfile.gettempdir(), "course")
    resolved = behind_links(target)
    base = resolved.with_name(f"{_stem(resolved)}.work")
    with _naming(target, resolved), _locked_temporary(base, PRIVATE) as folder:
        yield folder


@contextmanager
def atomic_write(target: Path) -> Iterator[IO[bytes]]:
    """Yield a binary file that replaces `target`, or what it links to, when the block ends without an error.

    STANDARD_OUTPUT is written directly. Raises UsageError if `target` is a device or pipe.
    """
    if target == STANDARD_OUTPUT:
        # cli.py opens this for a standard output that is closed.
        if getattr(sys.stdout, "name", "") == os.devnull:
            raise UsageError(tr("-o -: standard output is closed; allowed: a path, or an open standard output"))
        with open(os.dup(sys.stdout.fileno()), "wb") as file:
            yield file
        return
    if target.is_dir():
        raise CourseError(f"{target}: is a directory, expected a name for a file")
    resolved = behind_links(require_replaceable(target))
    mode = _mode(resolved)

    def create(path: Path) -> None:
        path.open("xb").close()
        if mode is not None:
            # Nobody else may read the new content on its way either; only its owner has to write it.
            path.chmod(mode | stat.S_IWUSR)

    with _naming(target, resolved), _locked_temporary(resolved, create) as temporary:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        os.replace(temporary, resolved)
        _sync(resolved.parent)


def _mode(path: Path) -> int | None:
    """Return the permissions of a file or folder, or None if there is none."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def link_or_copy(source: Path, target: Path) -> None:
    """Create `target` as a hard link to a file, or as a copy on a disk without hard links, such as a Google Drive."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def require_other(source: Path, target: Path) -> None:
    """Raise UsageError if `target` is the input `source`, contains it, or is inside it, under whatever name.

    Files and folders are compared by device and inode: links, hard links and the case of letters do not matter.
    """
    read, written = behind_links(source), behind_links(target)
    if not read.exists():
        return
    if _identity(read) in map(_identity, (written, *written.parents)) or (
        written.exists() and _identity(written) in map(_identity, read.parents)
    ):
        raise UsageError(f"-o {target}: is the input {source}, holds it or is inside it; allowed: a path outside it")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file or folder, or None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def inner_suffix(path: Path) -> str:
    """Return the suffix of a file name, ignoring any compression suffix: '.txt' for a.txt and for a.txt.xz."""
    return Path(path.stem).suffix if path.suffix in OPENERS else path.suffix


@contextmanager
def atomic_folder(target: Path, ours: bool = False) -> Iterator[Path]:
    """Yield an empty temporary folder, which replaces `target`, or what it links to, when the block ends without error.

    Raises UsageError, before the block runs, if `target` is a device, a pipe or a mount point, or a folder with files
    that the course did not write. In a folder that is `ours`, a path that only the course writes, those are kept.
    """
    resolved = behind_links(require_replaceable(target))
    if resolved.exists() and not resolved.is_dir():
        raise CourseError(tr("{target}: is a file, expected a name for a folder", target=target))
    if not resolved.name:
        raise UsageError(f"-o {target}: is no name for a folder; allowed: a path inside it")
    remove_leftovers(resolved)
    if not ours:
        require_product(resolved, target)
    with _naming(target, resolved), _locked_temporary(resolved, Path.mkdir) as temporary:
        yield temporary
        (temporary / FILE_LIST).write_text(json.dumps({"files": sorted(_entries(temporary))}) + "\n", encoding="utf8")
        _sync_all(temporary)
        if resolved.exists():
            # Also what came into the folder while the block ran, and while large files were synced.
            _take_over(resolved, temporary)
            _sync_all(temporary)
        _replace(temporary, resolved)
        _sync(resolved.parent)


def require_product(folder: Path, target: Path) -> None:
    """Raise UsageError, which names `target`, if a folder has a file that the course did not write."""
    others = sorted(not_ours(folder), key=lambda name: (name.endswith("/"), name)) if folder.is_dir() else []
    if others:
        message = tr_noop(
            "-o {target}: the folder holds other files: {name}; allowed: a new name, or a product to replace"
        )
        raise UsageError(tr(message, target=target, name=others[0]))


def not_ours(folder: Path) -> Iterator[str]:
    """Yield what is in a folder that the course did not write: relative paths, those of folders with / at the end."""
    listed = listed_in(folder)
    is_ours = unmarked.files_of(folder) if listed is None else listed.__contains__
    return (name for name in _entries(folder) if not (name == FILE_LIST or is_ours(name) or CACHED.fullmatch(name)))


def listed_in(folder: Path) -> set[str] | None:
    """Return what the marker file of a folder lists, or None if it has none, or one that is not the course's."""
    content = unmarked.json_of(folder / FILE_LIST)
    listed = content.get("files")
    return set(map(str, listed)) if isinstance(listed, list) else None


def _entries(folder: Path, above: str = "") -> Iterator[str]:
    """Yield what is in a folder: relative paths, those of folders with / at the end."""
    with os.scandir(folder) as found:
        for entry in found:
            name = above + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield f"{name}/"
                yield from _entries(Path(entry.path), f"{name}/")
            else:
                yield name


def _paths(folder: Path) -> Iterator[Path]:
    return (folder / name for name in _entries(folder))


def _take_over(old: Path, new: Path) -> None:
    """Take over what the user put into the folder of the earlier product, and permissions that the user chose.

    Where a file of the user has the name of a new one, it gets a ~ behind its name. Without a marker file it may as
    well be the earlier product's, and is replaced.
    """
    has_marker = listed_in(old) is not None
    for name in not_ours(old):
        target = new / name
        if name.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
            continue
        if target.exists() and not has_marker:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        while target.exists():
            target = target.with_name(f"{target.name}~")
        _link_or_copy_itself(old / name, target)
    for path in (new, *_paths(new)):
        before = old / path.relative_to(new)
        if before.exists() and not before.is_symlink() and _mode(before) != _mode(path):
            # The owner can still replace it the next time.
            path.chmod(stat.S_IMODE(before.stat().st_mode) | stat.S_IRWXU & stat.S_IMODE(path.stat().st_mode))


def _link_or_copy_itself(source: Path, target: Path) -> None:
    """Create `target` as a hard link to a file, or as a copy; of a link, the link itself."""
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)


def _sync_all(folder: Path) -> None:
    for path in (*_paths(folder), folder):
        _sync(path)


def _sync(path: Path) -> None:
    """Wait until a file, or the list of files in a folder, is on the disk."""
    if not path.is_file() and not path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNABLE:
            error.filename = str(path)
            raise
    finally:
        os.close(descriptor)


def _replace(temporary: Path, target: Path) -> None:
    """Give a folder the name `target`. An earlier folder gets the temporary name, or is removed."""
    if not target.exists():
        os.replace(temporary, target)
    elif not _exchange(temporary, target):
        _replace_by_two_renames(temporary, target)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step by Linux's renameat2(2), and return whether the system can."""
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    paths = AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other)
    return renameat2 is not None and renameat2(*paths, RENAME_EXCHANGE) == 0


def _replace_by_two_renames(temporary: Path, target: Path) -> None:
    """Replace a folder. If the process is killed between the renames, remove_leftovers gives it its name back."""
    old = _hidden(target, ".old")
    descriptor = os.open(target, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            os.replace(target, old)
            os.replace(temporary, target)
        except BaseException:
            if old.exists() and not target.exists():
                os.replace(old, target)
            raise
        _sync(target.parent)
        _remove(old)
    finally:
        os.close(descriptor)


def human_size(size: float) -> str:
    """Format a size in bytes with a decimal unit: 1234567 → '1.2 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if round(abs(size), 1) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
