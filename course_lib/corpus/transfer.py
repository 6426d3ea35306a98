"""HTTP download of a file, resumed after a broken connection and begun anew if the remote file has changed.

The bytes received so far are in a `.part` file, and the version that they belong to (ETag or Last-Modified) in
`.part.json`. The If-Range header sends this version to the server, which sends the whole file if it has another one
(RFC 9110, section 13.1.5).
"""

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx

from course_lib import __version__
from course_lib.corpus.config import DownloadConfig
from course_lib.errors import CourseError, UsageError, one_line
from course_lib.files import human_size, read_json, write_json
from course_lib.notebooks.progress import progress

Result = TypeVar("Result")
# Maximum seconds between two attempts, even if the server asks for more.
LONGEST_WAIT = 60.0
# Status codes that lead to another attempt, like 5xx.
BUSY = {408, 425, 429}
AGAIN = "run the same command again to resume"


class Missing(CourseError):
    """The error for a file that is not on the server (status 404 or 410)."""


class Again(Exception):
    """A failed attempt that may succeed if repeated; `wait` is the delay requested by the server [s]."""

    wait = 0.0


def client(settings: DownloadConfig) -> httpx.Client:
    """Return an HTTP client that receives files as they are published, without further compression."""
    headers = {"User-Agent": f"course_lib/{__version__}", "Accept-Encoding": "identity"}
    return httpx.Client(timeout=settings.timeout, headers=headers, follow_redirects=True)


def persist(url: str, attempt: Callable[[], Result], settings: DownloadConfig, part: Path | None = None) -> Result:
    """Call `attempt` until it succeeds; after too many failures in a row without growth of `part`, raise CourseError.

    The wait doubles with each failure.
    """
    failures, best = 0, size(part)
    while True:
        try:
            return attempt()
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise UsageError(f"{url}: not a usable address ({error})") from None
        except (httpx.RequestError, Again) as error:
            failures, best = (1 if size(part) > best else failures + 1), max(best, size(part))
            if failures > settings.retries:
                kept = f"what arrived is kept in {part}; " if part else ""
                reason = f"{_reason(error, settings)} ({failures} attempts in a row without progress)"
                raise CourseError(f"{url}: {reason}; {kept}{AGAIN}") from None
            asked = error.wait if isinstance(error, Again) else 0.0
            time.sleep(min(max(settings.backoff * 2 ** (failures - 1), asked), LONGEST_WAIT))


def _reason(error: Exception, settings: DownloadConfig) -> str:
    if isinstance(error, httpx.TimeoutException):
        return f"no answer within {settings.timeout:g} s"
    if isinstance(error, httpx.ConnectError):
        return f"the server cannot be reached ({one_line(error)})"
    return str(error) if isinstance(error, Again) else f"the connection broke ({one_line(error)})"


def answer(response: httpx.Response, *expected: int) -> httpx.Response:
    """Return a response with an expected status code.

    Otherwise, raise Missing for 404 and 410, Again for a busy or failing server, and CourseError for other codes.
    """
    code = response.status_code
    if code in expected:
        return response
    message = f"the server answered {code} {response.reason_phrase}"
    if code in (404, 410):
        raise Missing(f"{response.url}: not found ({message})")
    if code in BUSY or code >= 500:
        again, asked = Again(message), response.headers.get("Retry-After", "")
        again.wait = float(asked) if asked.isdecimal() else 0.0
        raise again
    raise CourseError(f"{response.url}: {message}")


def receive(session: httpx.Client, url: str, part: Path) -> None:
    """Send one request: resume `part` if it holds the same version of the file, else begin anew.

    Raises Again if `part` is not complete afterwards.
    """
    known = read_notes(_notes(part))
    known = known if known.get("url") == url else {}
    start = size(part) if known.get("validator") else 0
    headers = {"Range": f"bytes={start}-", "If-Range": known["validator"]} if start else {}
    with session.stream("GET", url, headers=headers) as response:
        code = answer(response, 200, *((206, 416) if start else ())).status_code
        if code == 416 and start == known["size"]:
            # The remote file ends where `part` ends.
            return
        if code != 200 and not re.match(f"bytes {start}-", response.headers.get("Content-Range", "")):
            forget(part)
            raise Again("the server does not continue the started file; the download starts again from byte 0")
        if code == 200:
            known, start = _begin(part, response, url), 0
        _append(response, part, start, known["size"])


def _begin(part: Path, response: httpx.Response, url: str) -> dict[str, Any]:
    """Empty `part`, then record the new version. In this order, old bytes are never recorded as the new version."""
    etag, length = response.headers.get("ETag", ""), response.headers.get("Content-Length", "")
    # A weak ETag, W/"…", may stand for other bytes.
    validator = etag if etag.startswith('"') else response.headers.get("Last-Modified", "")
    known = {"url": url, "validator": validator, "size": int(length) if length.isdecimal() else None}
    part.open("wb").close()
    write_json(_notes(part), known)
    return known


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
    if total is not None and size(part) != total:
        raise Again(f"got {size(part)} bytes of {total}")


def size(path: Path | None) -> int:
    """Return the size of a file [bytes]; 0 if there is none."""
    return path.stat().st_size if path and path.exists() else 0


def read_notes(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or {} if it is missing or broken."""
    try:
        return read_json(path)
    except CourseError:
        return {}


def forget(part: Path) -> None:
    """Remove a partial download and its record."""
    part.unlink(missing_ok=True)
    _notes(part).unlink(missing_ok=True)


def _notes(part: Path) -> Path:
    return part.with_name(part.name + ".json")
