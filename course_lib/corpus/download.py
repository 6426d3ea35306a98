"""Downloader for Japanese Wikipedia dumps and the Japanese part of CC-100, from the publisher or a mirror.

A file gets its final name only when it is complete and verified. Until then it is `<name>.part`, which a later call
resumes (transfer.py). `<name>.verified.json` records what was verified.

Sources: https://dumps.wikimedia.org/jawiki/ (dumps with SHA-1 checksums), https://data.statmt.org/cc-100/ (no
known checksums).
"""

import hashlib
import lzma
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from filelock import FileLock, Timeout

from course_lib.corpus.config import Dataset, DownloadConfig
from course_lib.corpus.transfer import AGAIN, Missing, answer, client, forget, persist, read_notes, receive, size
from course_lib.errors import CourseError, UsageError
from course_lib.files import CHUNK, OPENERS, behind_links, human_size, write_json
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress

DUMP = "pages-articles-multistream{part}.xml.bz2"
DEFAULTS = DownloadConfig()
HEX_DIGITS = {"sha256": 64, "sha1": 40}
# What is noted about a verified file: {"size", "mtime_ns", "sums": {algorithm: digest}}.
Record = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A file to download: its local name, its URL and the URL of its checksum list."""

    name: str
    url: str
    algorithm: str = ""
    sums: str = ""  # URL of the checksum list
    listed_as: str = ""  # regular expression for the file's name in this list
    moving: bool = False  # whether the content at the URL changes over time, as it does for `latest`
    dumps: str = ""  # URL of the list of dumps, for the "not found" message


@dataclass(frozen=True)
class Checksum:
    """A published checksum: the digest in lowercase hexadecimal, and the file name in the publisher's list."""

    algorithm: str
    digest: str
    name: str


def download(
    dataset: Dataset,
    target_folder: Path,
    date: str = "latest",
    settings: DownloadConfig = DEFAULTS,
    part: int | None = None,
) -> Path:
    """Download a corpus, or resume an interrupted download, and return the path of the complete, verified file.

    The function prints one line that says what was verified. A file that is already verified is not downloaded again.
    For `latest`, its checksum is first compared with the published one, because new dumps appear at the same URL.

    Args:
        dataset: the corpus.
        target_folder: the folder for the file.
        date: `latest`, or the day of a Wikipedia dump, such as 20261101.
        settings: URLs, retries and waiting times.
        part: number of one of the files into which a Wikipedia dump is also split; None means the whole dump.

    Raises:
        UsageError: before any request, if the dataset, date or part is not allowed.
        CourseError: in one line, if anything fails later; an earlier complete file is then left unchanged.
    """
    return _complete(_source(dataset, date, settings, part), target_folder, settings, part)


def download_address(url: str, target_folder: Path, settings: DownloadConfig = DEFAULTS) -> Path:
    """Download the .xz or .bz2 file at an address, or resume the download, and return the verified file's path."""
    name = url.rpartition("/")[2]
    if not name.endswith((".xz", ".bz2")):
        raise UsageError(f"{url}: only names ending in .xz or .bz2 can be verified; download other files yourself")
    return _complete(Source(name, url), target_folder, settings)


def _source(dataset: str, date: str, settings: DownloadConfig, part: int | None) -> Source:
    if part is not None and (dataset != "jawiki" or part < 1):
        raise UsageError(f"part: {part} is not allowed: a number from 1, for jawiki only")
    if dataset == "cc100":
        if date != "latest":
            raise UsageError(f"date: {date!r} is not allowed: cc100 has one edition only; leave the date out")
        url = f"{settings.cc100_mirror.rstrip('/')}/ja.txt.xz"
        return Source("ja.txt.xz", url, "sha256", f"{url}.sha256", r"ja\.txt\.xz")
    if date != "latest" and not re.fullmatch("[0-9]{8}", date):
        raise UsageError(f"date: {date!r} is not allowed: expected `latest` or the day of a dump, like 20261101")
    folder = f"{settings.wikipedia_mirror.rstrip('/')}/jawiki"
    base = f"{folder}/{date}/jawiki-{date}-"
    # The lists under latest/ use the actual date of the dump in file names.
    day = "(?:latest|[0-9]{8})" if date == "latest" else date
    name = DUMP.format(part=part or "")
    # The published name of a part ends in the range of its page ids, as in `1.xml-p1p114794.bz2`.
    pages = "" if part is None else r"-p[0-9]+p[0-9]+"
    return Source(
        name=f"jawiki-{date}-{name}",
        url=base + name,
        algorithm="sha1",
        sums=f"{base}sha1sums.txt",
        listed_as=rf"jawiki-{day}-{re.escape(name.removesuffix('.bz2'))}{pages}\.bz2",
        moving=date == "latest",
        dumps=f"{folder}/",
    )


def _complete(source: Source, target_folder: Path, settings: DownloadConfig, part: int | None = None) -> Path:
    """Return the path of the complete, verified file, which is downloaded if necessary."""
    target = target_folder / source.name
    record = _record(target)
    if record and not source.moving:
        return _done(target, record, earlier=True)
    with _disk_errors(target), _lock(target), client(settings) as session:
        published = _published(session, source, settings)
        if part is not None:
            source = _located(source, published, part)
        if record := _verified(target, published, record):
            return _done(target, record, earlier=True)
        return _done(target, _fetch(session, target, source, published, settings))


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError raised while `path` is written into a one-line CourseError."""
    try:
        yield
    except OSError as error:
        raise CourseError(f"{error.filename or path}: {error.strerror or error}; correct this, then {AGAIN}") from None


def _lock(target: Path) -> Any:
    """Create the target folder and return a held lock, so that no second process downloads the same file."""
    if target.is_dir():
        raise CourseError(f"{target}: is a directory, expected a file or nothing")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        return FileLock(target.with_name(f".{target.name}.lock")).acquire(timeout=0)
    except Timeout:
        raise CourseError(f"{target}: another process is downloading it") from None


def _published(session: httpx.Client, source: Source, settings: DownloadConfig) -> Checksum | None:
    """Return the published checksum, or None if there is none."""
    if not source.sums:
        return None
    try:
        listing = persist(source.sums, lambda: answer(session.get(source.sums), 200).text, settings)
    except Missing:
        return None
    return read_checksum(listing, source.algorithm, source.listed_as)


def read_checksum(listing: str, algorithm: str, name: str) -> Checksum | None:
    """Return the checksum in a list in `sha1sum` format whose file name matches a regular expression, if any."""
    line = re.compile(rf"^([0-9a-fA-F]{{{HEX_DIGITS[algorithm]}}})[ \t]+\*?(?:\./)?({name})[ \t\r]*$", re.M)
    match = line.search(listing)
    return Checksum(algorithm, match[1].lower(), match[2]) if match else None


def _located(source: Source, published: Checksum | None, part: int) -> Source:
    """Return the source of a part with its URL, which is in the checksum lists. Raises CourseError if it is in none."""
    if published is None:
        raise CourseError(f"part: {part} is not in {source.sums}{_dates(source)}")
    # The lists under latest/ use the actual date, the files under latest/ do not.
    folder, _, name = source.url.rpartition("/")
    date = name.split("-")[1]
    return replace(source, url=f"{folder}/jawiki-{date}-{published.name.split('-', 2)[2]}")


def _dates(source: Source) -> str:
    """Return advice about dates, as the end of a message."""
    return f"; a date is a day such as 20261101, or `latest`; {source.dumps} lists the dumps" if source.dumps else ""


def _verified(target: Path, published: Checksum | None, record: Record | None) -> Record | None:
    """Return the record for the existing file; None if there is no file or it must be downloaded again."""
    if not size(target) or (record and not published):
        return record
    if published:
        known = record and record["sums"].get(published.algorithm)
        sound = (known or digest(target, published.algorithm)) == published.digest
    else:
        sound = not container_flaw(target, target.suffix)
    return _remember(target, target, published) if sound else None


def _fetch(
    session: httpx.Client, target: Path, source: Source, published: Checksum | None, settings: DownloadConfig
) -> Record:
    """Download and verify the file, and return its record.

    A file that fails verification is removed, because resuming it would not help.
    """
    # Keep a symbolic link, because the file it points to may be on another disk.
    destination = behind_links(target)
    part = destination.with_name(destination.name + ".part")
    try:
        persist(source.url, lambda: receive(session, source.url, part), settings, part)
    except Missing as error:
        raise CourseError(f"{error}{_dates(source)}") from None
    if not size(part):
        raise CourseError(f"{source.url}: the file on the server is empty (0 bytes)")
    if flaw := _checksum_flaw(part, source, published) if published else container_flaw(part, target.suffix):
        forget(part)
        raise CourseError(f"{source.url}: {flaw}; the download was removed, run the same command again")
    record = _remember(part, target, published)
    os.replace(part, destination)
    forget(part)
    return record


def _checksum_flaw(part: Path, source: Source, published: Checksum) -> str:
    computed = digest(part, published.algorithm)
    if computed == published.digest:
        return ""
    moved = f" (published for {published.name}; `latest` may point to a newer dump by now)" if source.moving else ""
    return f"wrong checksum: expected {published.algorithm} {published.digest}{moved}, computed {computed}"


def digest(path: Path, algorithm: str) -> str:
    """Return the checksum of a file in hexadecimal, showing a progress bar."""
    state = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file, _verifying(path) as bar:
        while chunk := file.read(CHUNK):
            state.update(chunk)
            bar.update(len(chunk))
    return state.hexdigest()


def container_flaw(path: Path, suffix: str) -> str:
    """Return what is wrong with an .xz or .bz2 container, with the byte position; "" if the container is intact.

    The whole file is decompressed in constant memory and the result is discarded. Every block has its own checksum, the
    last stream must be complete, and only xz padding may follow it.
    """
    with path.open("rb") as file, _verifying(path) as bar:
        stream = OPENERS[suffix](file)
        try:
            while stream.read1(CHUNK):
                bar.update(file.tell() - bar.n)
        # bz2 raises OSError for bad data.
        except (lzma.LZMAError, OSError, ValueError, EOFError) as error:
            where = f"read up to byte {file.tell()} of {path.stat().st_size}"
            return f"not a sound {suffix[1:]} container: {error}; {where}"
    return ""


def _verifying(path: Path) -> Any:
    return progress(path.stat().st_size, "B", tr("verifying {name}", name=path.name.removesuffix(".part")))


def _notes(target: Path) -> Path:
    return target.with_name(f"{target.name}.verified.json")


def _record(target: Path) -> Record | None:
    """Return the record for `target`; None if it was never verified or has changed since."""
    if not target.exists():
        return None
    record, stat = read_notes(_notes(target)), target.stat()
    return record if (record.get("size"), record.get("mtime_ns")) == (stat.st_size, stat.st_mtime_ns) else None


def _remember(path: Path, target: Path, published: Checksum | None) -> Record:
    """Save and return the record for a file that was just verified: `target` or the file that will replace it."""
    stat, sums = path.stat(), {published.algorithm: published.digest} if published else {}
    record = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sums": sums}
    write_json(_notes(target), record)
    return record


def _done(target: Path, record: Record, earlier: bool = False) -> Path:
    """Print what was verified, and return the file. `earlier` says that it was complete before."""
    if record["sums"]:
        how = tr("{algorithm} verified", algorithm=next(iter(record["sums"])))
    else:
        message = "no checksum is published for it: only the {kind} container's own integrity check was verified"
        how = tr(message, kind=target.suffix[1:])
    if earlier:
        how = tr("already complete ({verified})", verified=how)
    print(f"{target}: {human_size(target.stat().st_size)}, {how}", flush=True)
    return target
