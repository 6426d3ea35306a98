"""Downloader for Japanese Wikipedia dumps and the Japanese part of CC-100, from the publisher or a mirror.

A file gets its final name only when it is complete and verified; `<name>.verified.json` records what was verified.
Until then it is `<name>.part`, which a later call resumes. `<name>.part.json` holds the version that its bytes belong
to (ETag or Last-Modified), which the If-Range header sends to the server; the server sends the whole file if it has
another version (RFC 9110, section 13.1.5).

Sources: https://dumps.wikimedia.org/jawiki/ (dumps with SHA-1 checksums), https://data.statmt.org/cc-100/ (no
known checksums).
"""

import hashlib
import lzma
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx
from filelock import FileLock, Timeout

from course_lib import __version__
from course_lib.corpus.config import Dataset, DownloadConfig
from course_lib.errors import CourseError, UsageError, one_line
from course_lib.files import CHUNK, OPENERS, human_size, read_json, write_json
from course_lib.language.words import mark, tr
from course_lib.notebooks.progress import progress

Result = TypeVar("Result")
DUMP = "pages-articles-multistream{part}.xml.bz2"
DEFAULTS = DownloadConfig()
# Status codes that lead to another attempt, like 5xx.
BUSY = {408, 425, 429}
# Maximum seconds between two attempts, even if the server asks for more.
LONGEST_WAIT = 60.0
AGAIN = "run the same command again to resume"
# What is noted about a verified file: {"size", "mtime_ns", "sums": {"sha1": digest}}.
Record = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A file to download: its local name, its URL and the URL of its checksum list."""

    name: str
    url: str
    sums: str = ""  # URL of the list of SHA-1 checksums
    listed_as: str = ""  # regular expression for the file's name in this list
    moving: bool = False  # whether the content at the URL changes over time, as it does for `latest`
    advice: str = ""  # end of the "not found" message


class Checksum(NamedTuple):
    """A published SHA-1 checksum: the digest in lowercase hexadecimal, and the file name in the publisher's list."""

    digest: str
    name: str


class Again(Exception):
    """A failed attempt that may succeed if repeated: the reason, and the wait that the server asks for [s]."""


def download(
    dataset: Dataset,
    target_folder: Path,
    date: str = "latest",
    settings: DownloadConfig = DEFAULTS,
    part: int | None = None,
) -> Path:
    """Download a corpus, or resume an interrupted download, and return the path of the complete, verified file.

    A verified file is not downloaded again, unless the published checksum of the `latest` dump has changed. Prints one
    line that says what was verified.

    Args:
        dataset: the corpus.
        target_folder: the folder for the file.
        date: `latest`, or the day of a Wikipedia dump, such as 20261101.
        settings: URLs, retries and waiting times.
        part: number of one of the files into which a Wikipedia dump is also split; None means the whole dump.
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
        return Source("ja.txt.xz", f"{settings.cc100_mirror.rstrip('/')}/ja.txt.xz")
    if date != "latest" and not re.fullmatch("[0-9]{8}", date):
        raise UsageError(f"date: {date!r} is not allowed: expected `latest` or the day of a dump, like 20261101")
    folder = f"{settings.wikipedia_mirror.rstrip('/')}/jawiki"
    base = f"{folder}/{date}/jawiki-{date}-"
    # The lists under latest/ use the actual date of the dump in file names.
    day = "[0-9]{8}" if date == "latest" else date
    name = DUMP.format(part=part or "")
    # The published name of a part ends in the range of its page ids, as in `1.xml-p1p114794.bz2`.
    pages = "" if part is None else r"-p[0-9]+p[0-9]+"
    return Source(
        name=f"jawiki-{date}-{name}",
        url=base + name,
        sums=f"{base}sha1sums.txt",
        listed_as=rf"jawiki-(?:latest|{day})-{re.escape(name.removesuffix('.bz2'))}{pages}\.bz2",
        moving=date == "latest",
        advice=f"; a date is a day such as 20261101, or `latest`; {folder}/ lists the dumps",
    )


def _complete(source: Source, target_folder: Path, settings: DownloadConfig, part: int | None = None) -> Path:
    """Return the path of the complete, verified file, which is downloaded if necessary."""
    target = target_folder / source.name
    record = _record(target)
    if record and not source.moving:
        return _done(target, record, earlier=True)
    # Files are received as they are published, without further compression.
    headers = {"User-Agent": f"course_lib/{__version__}", "Accept-Encoding": "identity"}
    try:
        target_folder.mkdir(parents=True, exist_ok=True)
        with (
            FileLock(target.with_name(f".{target.name}.lock")).acquire(timeout=0),
            httpx.Client(timeout=settings.timeout, headers=headers, follow_redirects=True) as session,
        ):
            published = _published(session, source, settings)
            if part is not None:
                if published is None:
                    raise CourseError(f"part: {part} is not in {source.sums}{source.advice}")
                base = source.sums.removesuffix("sha1sums.txt")
                source = replace(source, url=base + published.name.split("-", 2)[2])
            known = record["sums"].get("sha1") if record else None
            if record and (not published or known == published.digest):
                return _done(target, record, earlier=True)
            if not known and _size(target) and not _flaw(target, target.suffix, published):
                return _done(target, _remember(target, target, published), earlier=True)
            return _done(target, _fetch(session, target, source, published, settings))
    except Timeout:
        raise CourseError(f"{target}: another process is downloading it") from None
    except OSError as error:
        raise CourseError(
            f"{error.filename or target}: {error.strerror or error}; correct this, then {AGAIN}"
        ) from None


def _published(session: httpx.Client, source: Source, settings: DownloadConfig) -> Checksum | None:
    """Return the published checksum, or None if there is none."""
    if not source.sums:
        return None
    listing = _persist(source.sums, lambda: _answer(session.get(source.sums), 200, 404).text, settings)
    match = re.search(rf"^([0-9a-fA-F]{{40}})[ \t]+\*?({source.listed_as})[ \t\r]*$", listing, re.M)
    return Checksum(match[1].lower(), match[2]) if match else None


def _fetch(
    session: httpx.Client, target: Path, source: Source, published: Checksum | None, settings: DownloadConfig
) -> Record:
    """Download and verify the file, and return its record. A damaged file is removed, because it cannot be resumed."""
    part = target.with_name(target.name + ".part")
    _persist(source.url, lambda: _receive(session, source, part), settings, part)
    if flaw := _flaw(part, target.suffix, published):
        _forget(part)
        raise CourseError(f"{source.url}: {flaw}; the download was removed, run the same command again")
    record = _remember(part, target, published)
    os.replace(part, target)
    _forget(part)
    return record


def _persist(url: str, attempt: Callable[[], Result], settings: DownloadConfig, part: Path | None = None) -> Result:
    """Call `attempt` until it succeeds; after too many failures in a row without growth of `part`, raise CourseError.

    The wait doubles with each failure.
    """
    failures, best = 0, _size(part)
    while True:
        asked = 0.0
        try:
            return attempt()
        except httpx.InvalidURL as error:
            raise UsageError(f"{url}: not a usable address ({error})") from None
        except httpx.TimeoutException:
            reason = f"no answer within {settings.timeout:g} s"
        except httpx.RequestError as error:
            reason = f"the server cannot be reached, or the connection broke ({one_line(error)})"
        except Again as error:
            reason, asked = error.args
        failures, best = (1 if _size(part) > best else failures + 1), max(best, _size(part))
        if failures > settings.retries:
            kept = f"what arrived is kept in {part}; " if part else ""
            raise CourseError(f"{url}: {reason} ({failures} attempts in a row without progress); {kept}{AGAIN}")
        time.sleep(min(max(settings.backoff * 2 ** (failures - 1), asked), LONGEST_WAIT))


def _answer(response: httpx.Response, *expected: int) -> httpx.Response:
    """Return a response with an expected status code; raise Again for a busy server, else CourseError."""
    code = response.status_code
    if code in expected:
        return response
    message = f"the server answered {code} {response.reason_phrase}"
    if code in BUSY or code >= 500:
        asked = response.headers.get("Retry-After", "")
        raise Again(message, float(asked) if asked.isdecimal() else 0.0)
    raise CourseError(f"{response.url}: {message}")


def _receive(session: httpx.Client, source: Source, part: Path) -> None:
    """Send one request: resume `part` if it holds the same version, else begin anew. Raises Again if part is left."""
    known = _read_notes(_notes(part))
    start = _size(part) if known.get("url") == source.url and known.get("validator") else 0
    headers = {"Range": f"bytes={start}-", "If-Range": known["validator"]} if start else {}
    with session.stream("GET", source.url, headers=headers) as response:
        code = _answer(response, 200, 404, *((206, 416) if start else ())).status_code
        if code == 404:
            raise CourseError(f"{source.url}: not found (the server answered 404){source.advice}")
        if code == 416 and start == known["size"]:
            # The remote file ends where `part` ends.
            return
        if code != 200 and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            _forget(part)
            raise Again("the server does not continue the started file; the download starts again from byte 0", 0.0)
        if code == 200:
            etag, length = response.headers.get("ETag", ""), response.headers.get("Content-Length", "")
            # A weak ETag, W/"…", may stand for other bytes.
            validator = etag if etag.startswith('"') else response.headers.get("Last-Modified", "")
            size = int(length) if length.isdecimal() else None
            known, start = {"url": source.url, "validator": validator, "size": size}, 0
            # In this order, old bytes are never recorded as the new version.
            part.open("wb").close()
            write_json(_notes(part), known)
        _append(response, part, start, known["size"])


def _append(response: httpx.Response, part: Path, start: int, total: int | None) -> None:
    """Append the response body to `part`, which holds `start` of `total` bytes (None if unknown)."""
    needed, free = (total or 0) - start, shutil.disk_usage(part.parent).free
    if needed > free:
        room = f"{human_size(needed)} still needed, {human_size(free)} free"
        raise CourseError(f"{part}: the disk is too full: {room}; then {AGAIN}")
    with part.open("ab") as file, progress(total, "B", part.name.removesuffix(".part"), start) as bar:
        # Each chunk is written on arrival, so that a broken connection loses no received bytes.
        for chunk in response.iter_raw():
            file.write(chunk)
            bar.update(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    if total is not None and _size(part) != total:
        raise Again(f"got {_size(part)} bytes of {total}", 0.0)


def _flaw(path: Path, suffix: str, published: Checksum | None) -> str:
    """Return what is wrong with a file by its checksum or, if none is published, as a container; else ""."""
    if not published:
        return container_flaw(path, suffix)
    state = hashlib.sha1(usedforsecurity=False)
    with path.open("rb") as file, _verifying(path) as bar:
        while chunk := file.read(CHUNK):
            state.update(chunk)
            bar.update(len(chunk))
    if state.hexdigest() == published.digest:
        return ""
    return f"wrong checksum: expected sha1 {published.digest} (of {published.name}), computed {state.hexdigest()}"


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


def _size(path: Path | None) -> int:
    return path.stat().st_size if path and path.exists() else 0


def _read_notes(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or {} if it is missing or broken."""
    try:
        return read_json(path)
    except CourseError:
        return {}


def _notes(path: Path, kind: str = "") -> Path:
    return path.with_name(f"{path.name}{kind}.json")


def _forget(part: Path) -> None:
    """Remove a partial download and its record."""
    part.unlink(missing_ok=True)
    _notes(part).unlink(missing_ok=True)


def _stamp(path: Path) -> Record:
    return {"size": path.stat().st_size, "mtime_ns": path.stat().st_mtime_ns}


def _record(target: Path) -> Record | None:
    """Return the record for `target`; None if it was never verified or has changed since."""
    record = _read_notes(_notes(target, ".verified"))
    return record if target.exists() and record == _stamp(target) | {"sums": record.get("sums")} else None


def _remember(path: Path, target: Path, published: Checksum | None) -> Record:
    """Save and return the record for a file that was just verified: `target` or the file that will replace it."""
    record = _stamp(path) | {"sums": {"sha1": published.digest} if published else {}}
    write_json(_notes(target, ".verified"), record)
    return record


def _done(target: Path, record: Record, earlier: bool = False) -> Path:
    """Print what was verified, and return the file. `earlier` says that it was complete before."""
    how = tr("{algorithm} verified", algorithm="sha1")
    if not record["sums"]:
        message = mark("no checksum is published for it: only the {kind} container's own integrity check was verified")
        how = tr(message, kind=target.suffix[1:])
    if earlier:
        how = tr("already complete ({verified})", verified=how)
    print(f"{target}: {human_size(target.stat().st_size)}, {how}", flush=True)
    return target
