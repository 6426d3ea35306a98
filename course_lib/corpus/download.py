"""Downloads of Japanese Wikipedia dumps and of the Japanese part of CC-100, from the publisher or a mirror.

A file gets its final name only when it is complete and its published checksum is right. Until then it is `<name>.part`,
which a later call resumes. `<name>.part.json` holds the version that its bytes belong to (ETag or Last-Modified); the
server sends the whole file if it has another version (If-Range, RFC 9110, section 13.1.5).

Sources: https://dumps.wikimedia.org/jawiki/ (dumps with SHA-1 checksums), https://data.statmt.org/cc-100/ (without).
"""

import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
from filelock import FileLock, Timeout

from course_lib import __version__
from course_lib.corpus.config import Dataset, DownloadConfig
from course_lib.errors import CourseError, UsageError, one_line
from course_lib.files import CHUNK, OPENERS, human_size, read_json, write_json
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.progress import progress

Result = TypeVar("Result")
DEFAULTS = DownloadConfig()
# Files are received as they are published, without further compression.
HEADERS = {"User-Agent": f"course_lib/{__version__}", "Accept-Encoding": "identity"}
# Status codes that lead to another attempt, like 5xx.
BUSY = {408, 425, 429}
# Maximum seconds between two attempts.
LONGEST_WAIT = 60.0


def download(
    dataset: Dataset,
    target_folder: Path,
    date: str = "latest",
    settings: DownloadConfig = DEFAULTS,
    part: int | None = None,
) -> Path:
    """Download a corpus, or resume an interrupted download, and return the path of the complete, verified file.

    A complete file is not downloaded again. Prints one line that says what was verified.

    Args:
        dataset: the corpus.
        target_folder: the folder for the file, which keeps its published name.
        date: `latest`, or the day of a Wikipedia dump, such as 20261101.
        settings: URLs, retries and waiting times.
        part: number of one of the files into which a Wikipedia dump is also split; None means the whole dump.
    """
    if dataset == "cc100":
        if date != "latest" or part is not None:
            raise UsageError("date, part: not allowed for cc100, which is a single file")
        return download_address(f"{settings.cc100_mirror.rstrip('/')}/ja.txt.xz", target_folder, settings)
    if not re.fullmatch("latest|[0-9]{8}", date):
        raise UsageError(f"date: {date!r} is not allowed: expected `latest` or the day of a dump, like 20261101")
    dumps = f"{settings.wikipedia_mirror.rstrip('/')}/jawiki"
    base = f"{dumps}/{date}/jawiki-{date}-"
    # The published name of a part ends in the range of its page ids. The list of `latest` has the names of the day.
    which = r"\.xml\.bz2" if part is None else rf"{part}\.xml-p[0-9]+p[0-9]+\.bz2"
    listing = _retried(f"{base}sha1sums.txt", lambda: _text(f"{base}sha1sums.txt", settings), settings)
    listed = re.search(rf"^(\w{{40}}) +(jawiki-\w+-(pages-articles-multistream{which}))$", listing, re.M)
    if not listed:
        wanted = "the dump" if part is None else f"part: {part}"
        raise CourseError(
            f"{wanted} is not in {base}sha1sums.txt; "
            f"a date is a day such as 20261101, or `latest`; {dumps}/ lists the dumps"
        )
    return _complete(base + listed[3], target_folder / listed[2], settings, listed[1])


def download_address(url: str, target_folder: Path, settings: DownloadConfig = DEFAULTS) -> Path:
    """Download the file at an address, or resume the download, and return the path of the complete file."""
    return _complete(url, target_folder / url.rpartition("/")[2], settings)


def _complete(url: str, target: Path, settings: DownloadConfig, digest: str = "") -> Path:
    """Return the path of the complete file, which is downloaded unless it is there; `digest` is its SHA-1, if known."""
    unfinished = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f".{target.name}.lock")).acquire(timeout=0):
            earlier = target.exists() and not (digest and _flaw(target, target.suffix, digest))
            if not earlier:
                _retried(url, lambda: _receive(url, unfinished, settings), settings, unfinished)
                if flaw := _flaw(unfinished, target.suffix, digest):
                    unfinished.unlink()
                    raise CourseError(f"{url}: {flaw}; the download was removed, run the same command again")
                os.replace(unfinished, target)
                _notes(unfinished).unlink(missing_ok=True)
    except Timeout:
        raise CourseError(tr("{target}: another process is downloading it", target=target)) from None
    except OSError as error:
        message = tr_noop("{path}: {reason}; correct this, then run the same command again to resume")
        raise CourseError(tr(message, path=error.filename or target, reason=error.strerror or error)) from None
    how = tr("{algorithm} verified", algorithm="sha1")
    if not digest:
        message = tr_noop(
            "no checksum is published for it: only the {kind} container's own integrity check was verified"
        )
        how = tr(message, kind=target.suffix[1:])
    if earlier:
        how = tr("already complete ({verified})", verified=how)
    print(f"{target}: {human_size(target.stat().st_size)}, {how}", flush=True)
    return target


def _text(url: str, settings: DownloadConfig) -> str:
    """Return the text at an address; "" if there is none."""
    response = httpx.get(url, headers=HEADERS, timeout=settings.timeout, follow_redirects=True)
    return "" if response.status_code == 404 else response.raise_for_status().text


def _retried(
    url: str, attempt: Callable[[], Result], settings: DownloadConfig, unfinished: Path | None = None
) -> Result:
    """Call `attempt` until it succeeds, and return its result. The wait doubles with each failure.

    After too many failures in a row during which the file `unfinished` did not grow, raises CourseError.
    """
    failures, largest = 0, _size(unfinished)
    while True:
        try:
            return attempt()
        except httpx.InvalidURL as error:
            raise UsageError(tr("{url}: not a usable address ({error})", url=url, error=error)) from None
        except httpx.HTTPStatusError as error:
            code = error.response.status_code
            reason = tr("the server answered {code} {phrase}", code=code, phrase=error.response.reason_phrase)
            if code < 500 and code not in BUSY:
                raise CourseError(tr("{url}: {reason}", url=url, reason=reason)) from None
        except httpx.TimeoutException:
            reason = tr("no answer within {timeout:g} s", timeout=settings.timeout)
        except httpx.RequestError as error:
            reason = tr("the server cannot be reached, or the connection broke ({error})", error=one_line(error))
        size = _size(unfinished)
        failures = 1 if size > largest else failures + 1
        largest = max(largest, size)
        if failures > settings.retries:
            where = tr("what arrived is kept in {part}; ", part=unfinished) if unfinished else ""
            raise CourseError(
                tr("{url}: {reason} ({failures} attempts in a row without progress); {kept}"
                   "run the same command again to resume", url=url, reason=reason, failures=failures, kept=where)
            )  # fmt: skip
        time.sleep(min(settings.backoff * 2 ** (failures - 1), LONGEST_WAIT))


def _receive(url: str, unfinished: Path, settings: DownloadConfig) -> None:
    """Send one request: continue the file `unfinished` if it has the server's version of the file, else begin anew."""
    known = _version(unfinished)
    start = _size(unfinished) if known.get("url") == url and known.get("validator") else 0
    if start and start == known.get("size"):
        return
    headers = HEADERS | ({"Range": f"bytes={start}-", "If-Range": known["validator"]} if start else {})
    with httpx.stream("GET", url, headers=headers, timeout=settings.timeout, follow_redirects=True) as response:
        if response.raise_for_status().status_code != 206:
            etag, length = response.headers.get("ETag", ""), response.headers.get("Content-Length")
            # A weak ETag, W/"…", may stand for other bytes.
            validator = etag if etag.startswith('"') else response.headers.get("Last-Modified", "")
            known, start = {"url": url, "validator": validator, "size": int(length) if length else None}, 0
            # In this order, old bytes are never recorded as the new version.
            unfinished.open("wb").close()
            write_json(_notes(unfinished), known)
        with unfinished.open("ab") as file, progress(known["size"], "B", unfinished.stem, start) as bar:
            # Each chunk is written on arrival, so that a broken connection loses no received bytes.
            for chunk in response.iter_raw():
                file.write(chunk)
                bar.update(len(chunk))
            file.flush()
            os.fsync(file.fileno())


def _flaw(path: Path, suffix: str, digest: str) -> str:
    """Return what is wrong with a file by its SHA-1 or, if none is published, by the checks inside its format."""
    name = tr("verifying {name}", name=path.name.removesuffix(".part"))
    with path.open("rb") as file, progress(path.stat().st_size, "B", name) as bar:
        if digest:
            computed = hashlib.file_digest(file, "sha1").hexdigest()
            return "" if computed == digest else f"wrong checksum: expected sha1 {digest}, computed {computed}"
        try:
            stream = OPENERS[suffix](file) if suffix in OPENERS else file
            while stream.read(CHUNK):
                bar.update(file.tell() - bar.n)
        except CourseError as error:
            return f"not a sound {suffix[1:]} container: {error}"
    return ""


def _version(unfinished: Path) -> dict[str, Any]:
    """Return what is noted about a partial download: its url, validator and size; {} if nothing or not readable."""
    try:
        return read_json(_notes(unfinished))
    except CourseError:
        return {}


def _notes(unfinished: Path) -> Path:
    """Return the path of the file that notes the version of a partial download."""
    return unfinished.with_name(f"{unfinished.name}.json")


def _size(path: Path | None) -> int:
    """Return the size of a file [bytes]; 0 if there is none."""
    return path.stat().st_size if path and path.exists() else 0
