"""HTTP downloads of single files, resumed after a broken connection and restarted if the remote file has changed.

The bytes received so far are in a `.part` file. A `.part.json` file next to it records which version of the remote file
they belong to (ETag or Last-Modified). The If-Range header sends this version to the server. If the file has changed,
the server responds with the whole new file, so two versions are never mixed (RFC 9110, sections 13.1.5, 14.2 and
15.5.17). tenacity repeats failed requests. The names of local files are chosen by the caller, never by the server.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
from tenacity import RetryCallState, RetryError, Retrying, stop_after_attempt, wait_exponential
from tenacity.retry import retry_if_exception_type, retry_if_not_exception_type

from course_lib import __version__
from course_lib.corpus.integrity import Record, load_record
from course_lib.errors import CourseError, UsageError
from course_lib.files import human_size
from course_lib.progress import progress

Result = TypeVar("Result")
# Maximum seconds between two attempts, even if the server asks for more.
LONGEST_WAIT = 60.0
# Bytes; a checksum list has a few tens of kB.
TEXT_LIMIT = 10_000_000
# Status codes that lead to another attempt, like 5xx.
BUSY = {408, 425, 429}
AGAIN = "run the same command again to resume"
FULL = {errno.ENOSPC, errno.EDQUOT}


class Missing(CourseError):
    """The error for a file that is not on the server (status 404 or 410)."""


class Again(Exception):
    """A failed attempt that may succeed if repeated; `wait` is the delay requested by the server [s]."""

    def __init__(self, reason: str, wait: float = 0) -> None:
        super().__init__(reason)
        self.wait = wait


class Transfer(httpx.Client):
    """An HTTP client that retries failed requests; use it as a context manager.

    Args:
        patience: maximum time without data from the server [s].
        retries: consecutive retries without new data before the transfer fails. A retry that receives new data resets
            the count, so a long download survives any number of broken connections.
        backoff: wait before the first retry [s]; it doubles with each further retry, up to LONGEST_WAIT.
    """

    def __init__(self, patience: float, retries: int, backoff: float) -> None:
        # identity: the server sends the bytes as published, without further compression.
        headers = {"User-Agent": f"course_lib/{__version__}", "Accept-Encoding": "identity"}
        super().__init__(timeout=patience, headers=headers, follow_redirects=True)
        self.patience, self.retries, self.backoff = patience, retries, backoff

    def text(self, url: str) -> str:
        """Return the text of a small file.

        Raises Missing if the file is not on the server, and CourseError if anything else fails.
        """

        def attempt() -> str:
            content = bytearray()
            with self.stream("GET", url) as response:
                _refuse(response, url, (200,))
                for chunk in response.iter_raw():
                    content += chunk
                    if len(content) > TEXT_LIMIT:
                        raise CourseError(f"{url}: expected a short list, got more than {human_size(TEXT_LIMIT)}")
            return content.decode("utf8", "replace")

        return self._persist(url, attempt)

    def size(self, url: str) -> int | None:
        """Return the size of the file at `url` [bytes] without downloading it; None if the server does not state it."""

        def attempt() -> int | None:
            response = self.head(url)
            # Another request may succeed; None would make the caller download the whole file again.
            if response.status_code >= 500:
                _refuse(response, url, (200,))
            return _length(response) if response.status_code == 200 else None

        return self._persist(url, attempt)

    def file(self, url: str, part: Path) -> Record:
        """Download the file at `url` to `part`, resuming from the bytes already there, and return its version.

        Raises Missing if the file is not on the server, and CourseError with the URL and the cause if anything else
        fails. `part` is then kept for the next call.
        """
        record = self._persist(url, lambda: self._continue(url, part), part)
        if not _size(part):
            raise CourseError(f"{url}: the file on the server is empty (0 bytes)")
        return record

    def _persist(self, url: str, attempt: Callable[[], Result], part: Path | None = None) -> Result:
        """Call `attempt` until it succeeds or the retries run out; growth of `part` resets the retry count."""
        best = _size(part)

        def count(state: RetryCallState) -> None:
            nonlocal best
            if _size(part) > best:
                state.attempt_number, best = 1, _size(part)

        def wait(state: RetryCallState) -> float:
            asked = getattr(state.outcome and state.outcome.exception(), "wait", 0.0)
            return min(max(wait_exponential(self.backoff, LONGEST_WAIT)(state), asked), LONGEST_WAIT)

        passing = retry_if_exception_type((httpx.RequestError, Again))
        retry = passing & retry_if_not_exception_type(httpx.UnsupportedProtocol)
        try:
            return Retrying(retry=retry, stop=stop_after_attempt(self.retries + 1), wait=wait, after=count)(attempt)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise UsageError(f"{url}: not a usable address ({error})") from None
        except RetryError as error:
            last = error.last_attempt
            reason = self._reason(last.exception())
            if last.attempt_number > 1:
                reason = f"{reason} ({last.attempt_number} attempts in a row without progress)"
            raise CourseError(
                f"{url}: {reason}; what arrived is kept in {part}; {AGAIN}"
                if part
                else f"{url}: {reason}; run the same command again to resume"
            ) from None

    def _reason(self, error: BaseException | None) -> str:
        if isinstance(error, Again):
            return str(error)
        if isinstance(error, httpx.TimeoutException):
            return f"no answer within {self.patience:g} s"
        said = " ".join(str(error).split()) or type(error).__name__
        lost = isinstance(error, httpx.ConnectError)
        return f"the server cannot be reached ({said})" if lost else f"the connection broke ({said})"

    def _continue(self, url: str, part: Path) -> Record:
        """Send one request: resume `part` if it holds the same version of the file, else start again."""
        known = load_record(_notes(part), url)
        start = _size(part) if known and known.validator else 0
        headers = {"Range": f"bytes={start}-", "If-Range": known.validator} if known and start else {}
        with self.stream("GET", url, headers=headers) as response:
            if response.status_code == 416 and known and start == (_content_range(response)[1] or known.size):
                # The remote file ends where `part` ends: the download is complete.
                return known
            if headers and response.status_code in (206, 416) and not _continues(response, start, known):
                forget(part)
                raise Again("the server does not continue the started file; the download starts again from byte 0")
            _refuse(response, url, (200, 206) if headers else (200,))
            if response.status_code == 200:
                known, start = _begin(part, response, url), 0
            assert known is not None
            _receive(response, part, start, known.size)
            return known


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError raised while `path` is written into a one-line CourseError."""
    try:
        yield
    except OSError as error:
        full, said = error.errno in FULL, error.strerror or error
        what = "the disk is full" if full else f"cannot be written or read ({said})"
        raise CourseError(f"{error.filename or path}: {what}; correct this, then {AGAIN}") from None


def forget(part: Path) -> None:
    """Remove a partial download and its record."""
    part.unlink(missing_ok=True)
    _notes(part).unlink(missing_ok=True)


def _notes(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _size(part: Path | None) -> int:
    return part.stat().st_size if part and part.exists() else 0


def _length(response: httpx.Response) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _begin(part: Path, response: httpx.Response, url: str) -> Record:
    """Empty `part`, then record the new version. In this order, old bytes are never recorded as the new version."""
    header = response.headers.get
    record = Record(url, header("ETag", ""), header("Last-Modified", ""), _length(response))
    part.open("wb").close()
    record.save(_notes(part))
    return record


def _receive(response: httpx.Response, part: Path, start: int, size: int | None) -> None:
    """Append the response body to `part`, which holds `start` of `size` bytes (None if unknown).

    Raises Again if `part` does not have `size` bytes afterwards, and CourseError if the disk is too full.
    """
    needed, free = (size or 0) - start, shutil.disk_usage(part.parent).free
    if needed > free:
        raise CourseError(
            f"{part}: the disk is too full: {human_size(needed)} still needed, {human_size(free)} free; "
            f"make room, then {AGAIN}"
        )
    with part.open("ab") as file, progress(size, "B", part.name.removesuffix(".part"), start) as bar:
        # Each chunk is written on arrival, so that a broken connection loses no received bytes.
        for chunk in response.iter_raw():
            file.write(chunk)
            bar.update(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    if size is not None and _size(part) != size:
        raise Again(f"got {_size(part)} bytes of {size}")


def _refuse(response: httpx.Response, url: str, expected: tuple[int, ...]) -> None:
    """Raise an error if the status code is not in `expected`.

    The error is Missing for 404 and 410, Again for a busy or failing server, and CourseError otherwise.
    """
    code = response.status_code
    if code in expected:
        return
    said = f"{code} {response.reason_phrase}".rstrip()
    answer = f"the server answered {said}"
    if code in (404, 410):
        raise Missing(f"{url}: not found ({answer})")
    if code in BUSY or code >= 500:
        asked = response.headers.get("Retry-After", "")
        raise Again(answer, float(asked) if asked.isdecimal() else 0)
    raise CourseError(f"{url}: {answer}")


def _continues(response: httpx.Response, start: int, known: Record | None) -> bool:
    """Return whether a partial response starts at byte `start` and its headers do not contradict the known version."""
    if response.status_code != 206 or known is None:
        return False
    first, total = _content_range(response)
    same_etag = response.headers.get("ETag", known.etag) == known.etag
    same_date = response.headers.get("Last-Modified", known.modified) == known.modified
    same_size = total is None or known.size in (None, total)
    return first == start and same_size and same_etag and same_date


def _content_range(response: httpx.Response) -> tuple[int | None, int | None]:
    """Parse a Content-Range header such as `bytes 5-9/10` or `bytes */10` as (first byte, total bytes).

    A value that the header does not state is None.
    """
    match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(?:(\d+)|\*)", response.headers.get("Content-Range", ""))
    first, total = match.groups() if match else (None, None)
    return int(first) if first else None, int(total) if total else None
