"""One file over HTTP, however often the connection breaks: resumed by Range, begun anew when the remote file changed.

What has arrived lies in a `.part` file with a small `.part.json` beside it that remembers which version of the remote
file the bytes belong to (its ETag or Last-Modified). If-Range sends that back, so a server whose file has changed
answers with the whole new file, and two versions are never mixed (RFC 9110, sections 13.1.5, 14.2 and 15.5.17). This
module knows nothing of data sets and checksums (that is download.py); its names for local files come from the caller,
never from a server.
"""

import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx
import orjson
from pydantic import TypeAdapter

from course_lib import __version__
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_write, human_size
from course_lib.progress import progress

Result = TypeVar("Result")
LONGEST_WAIT = 60.0  # between two attempts [s], also where a server asks for more
TEXT_LIMIT = 10_000_000  # bytes; a list of checksums is some tens of kB
BUSY = {408, 425, 429}  # like 5xx: worth another attempt
AGAIN = "run the same command again to resume"
FULL = {errno.ENOSPC, errno.EDQUOT}


class Missing(CourseError):
    """The server has no such file (404 or 410)."""


class Again(Exception):
    """This attempt failed in a way that another may not; `wait` is what the server asked for [s]."""

    def __init__(self, reason: str, wait: float = 0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class Version:
    """What a server says of a file: enough to tell whether bytes fetched later belong to the same content."""

    url: str
    etag: str = ""
    modified: str = ""
    size: int | None = None  # bytes

    @property
    def validator(self) -> str:
        """The If-Range value: a strong ETag, else the date, else nothing (such a file cannot be resumed safely)."""
        strong = self.etag.startswith('"') and self.etag.isascii() and self.etag.isprintable()
        dated = self.modified.isascii() and self.modified.isprintable()
        return self.etag if strong else self.modified if dated else ""


class Transfer:
    """An HTTP client with patience. Use as a context manager.

    timeout [s] is how long a server may stay silent. An attempt that fails is followed by another after `backoff` s,
    doubled each time; `retries` counts the attempts in a row that bring nothing new, so a long file may break any
    number of times.
    """

    def __init__(self, timeout: float, retries: int, backoff: float) -> None:
        self.timeout, self.retries, self.backoff = timeout, retries, backoff

    def __enter__(self) -> "Transfer":
        # identity: the bytes as published, never compressed once more on the way
        headers = {"User-Agent": f"course_lib/{__version__}", "Accept-Encoding": "identity"}
        self.client = httpx.Client(timeout=self.timeout, headers=headers, follow_redirects=True)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.client.close()

    def text(self, url: str) -> str:
        """A small text file. Raises Missing where there is none, CourseError for other failures."""

        def attempt() -> str:
            content = bytearray()
            with self.client.stream("GET", url) as response:
                _refuse(response, url, (200,))
                for chunk in response.iter_raw():
                    content += chunk
                    if len(content) > TEXT_LIMIT:
                        raise CourseError(f"{url}: expected a short list, got more than {human_size(TEXT_LIMIT)}")
            return content.decode("utf8", "replace")

        return self._persist(url, attempt, lambda: 0, AGAIN)

    def size(self, url: str) -> int | None:
        """How long the file at `url` is [bytes], without fetching it; None where the server does not say."""

        def attempt() -> int | None:
            response = self.client.head(url)
            if response.status_code >= 500:  # asking again may help; fetching the file again is no answer to that
                _refuse(response, url, (200,))
            length = response.headers.get("Content-Length", "")
            return int(length) if response.status_code == 200 and length.isdecimal() else None

        return self._persist(url, attempt, lambda: 0, AGAIN)

    def file(self, url: str, part: Path) -> Version:
        """Brings the file at `url` whole into `part`, going on from what is there; returns which version it is.

        Raises Missing, or CourseError naming the URL and why; `part` then stays for the next call.
        """
        version = self._persist(
            url,
            lambda: self._continue(url, part),
            lambda: _size(part),
            f"what arrived is kept in {part}; {AGAIN}",
        )
        if not _size(part):
            raise CourseError(f"{url}: the file on the server is empty (0 bytes)")
        return version

    def _persist(self, url: str, attempt: Callable[[], Result], reached: Callable[[], int], advice: str) -> Result:
        failures, best = 0, reached()
        while True:
            try:
                return attempt()
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                raise UsageError(f"{url}: not a usable address ({error})") from None
            except (httpx.RequestError, Again) as error:
                failures = 1 if reached() > best else failures + 1
                best = max(best, reached())
                if failures > self.retries:
                    times = f" ({failures} attempts in a row without progress)" if failures > 1 else ""
                    raise CourseError(f"{url}: {self._reason(error)}{times}; {advice}") from None
                asked = error.wait if isinstance(error, Again) else 0
                time.sleep(min(max(self.backoff * 2 ** min(failures - 1, 30), asked), LONGEST_WAIT))

    def _reason(self, error: Exception) -> str:
        if isinstance(error, Again):
            return str(error)
        if isinstance(error, httpx.TimeoutException):
            return f"no answer within {self.timeout:g} s"
        what = "the server cannot be reached" if isinstance(error, httpx.ConnectError) else "the connection broke"
        return f"{what} ({' '.join(str(error).split()) or type(error).__name__})"

    def _continue(self, url: str, part: Path) -> Version:
        """One request: goes on behind what is in `part` if that is of the same version, else starts anew."""
        known = _remembered(part, url)
        start = _size(part) if known else 0
        headers = {"Range": f"bytes={start}-", "If-Range": known.validator} if known and start else {}
        with self.client.stream("GET", url, headers=headers) as response:
            if response.status_code == 416 and known and start == (_content_range(response)[1] or known.size):
                return known  # nothing lies behind what we have: it is complete
            if headers and response.status_code in (206, 416) and not _continues(response, start, known):
                forget(part)
                raise Again("the server does not continue the file that was begun; it is begun anew")
            _refuse(response, url, (200, 206) if headers else (200,))
            if response.status_code == 200:
                known, start = _begin(part, response, url), 0
            assert known is not None
            _receive(response, part, start, known.size)
            return known


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns what the disk refuses while `path` is made into one clear line."""
    try:
        yield
    except OSError as error:
        what = "the disk is full" if error.errno in FULL else f"cannot be written or read ({error.strerror or error})"
        raise CourseError(f"{error.filename or path}: {what}; when that is mended, {AGAIN}") from None


def forget(part: Path) -> None:
    """Removes a begun download and what is remembered of it."""
    part.unlink(missing_ok=True)
    _notes(part).unlink(missing_ok=True)


def _notes(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _remembered(part: Path, url: str) -> Version | None:
    """The version the bytes in `part` belong to; None if unknown, from elsewhere, or not to be recognized again."""
    try:
        found = TypeAdapter(Version).validate_json(_notes(part).read_bytes())
    except (OSError, ValueError):
        return None
    return found if found.url == url and found.validator else None


def _begin(part: Path, response: httpx.Response, url: str) -> Version:
    """Empties `part` and only then notes the new version: in no moment do old bytes stand under a new name."""
    length = response.headers.get("Content-Length", "")
    etag, modified = response.headers.get("ETag", ""), response.headers.get("Last-Modified", "")
    version = Version(url, etag, modified, int(length) if length.isdecimal() else None)
    part.open("wb").close()
    with atomic_write(_notes(part)) as file:
        file.write(orjson.dumps(asdict(version)))
    return version


def _receive(response: httpx.Response, part: Path, start: int, size: int | None) -> None:
    """Appends the body to `part`. Raises Again if less than `size` bytes are there at its end."""
    _require_room(part, (size or 0) - start)
    with part.open("ab") as file, _bar(part, start, size) as bar:
        for chunk in response.iter_raw():  # as they come: a broken connection loses nothing that had arrived
            file.write(chunk)
            bar.update(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    if size is not None and _size(part) != size:
        raise Again(f"got {_size(part)} bytes of {size}")


def _bar(part: Path, start: int, size: int | None) -> Any:
    bar = progress(size, "B", part.name.removesuffix(".part"))
    bar.initial = bar.n = bar.last_print_n = start  # so that the rate counts only what comes now
    bar.refresh()
    return bar


def _require_room(part: Path, needed: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed > free:
        raise CourseError(
            f"{part}: the disk is too full: {human_size(needed)} to come, {human_size(free)} free; "
            f"make room, then {AGAIN}"
        )


def _refuse(response: httpx.Response, url: str, expected: tuple[int, ...]) -> None:
    """Raises what an answer that is not `expected` calls for."""
    code = response.status_code
    if code in expected:
        return
    answer = f"the server answered {code} {response.reason_phrase}".rstrip()
    if code in (404, 410):
        raise Missing(f"{url}: not found ({answer})")
    if code in BUSY or code >= 500:
        asked = response.headers.get("Retry-After", "")
        raise Again(answer, float(asked) if asked.isdecimal() else 0)
    raise CourseError(f"{url}: {answer}")


def _continues(response: httpx.Response, start: int, known: Version | None) -> bool:
    """Whether a partial answer begins where we stopped and is of the version we know, as far as it says."""
    if response.status_code != 206 or known is None:
        return False
    first, total = _content_range(response)
    same_etag = response.headers.get("ETag", known.etag) == known.etag
    same_date = response.headers.get("Last-Modified", known.modified) == known.modified
    same_size = total is None or known.size in (None, total)
    return first == start and same_size and same_etag and same_date


def _content_range(response: httpx.Response) -> tuple[int | None, int | None]:
    """(first byte, total bytes) of `bytes 5-9/10` or `bytes */10`; None where unknown."""
    found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(?:(\d+)|\*)", response.headers.get("Content-Range", ""))
    first, total = found.groups() if found else (None, None)
    return int(first) if first else None, int(total) if total else None
