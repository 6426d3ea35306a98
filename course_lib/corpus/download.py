"""The two corpora of the recipes, from their publishers or a mirror: the Japanese Wikipedia's dump and Japanese CC-100.

A file appears under its own name only when it is whole and verified; until then it is `<name>.part`, which a later call
goes on with. `<name>.verified.json` beside it notes what was verified. How bytes travel is transfer.py, how a file is
verified integrity.py; what is in it is wikipedia.py and webtext.py.

Sources: https://dumps.wikimedia.org/jawiki/ (dumps with sha1 and md5 sums), https://data.statmt.org/cc-100/ (no sums
known).
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass as plain
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock, Timeout

from course_lib.corpus.config import Dataset, DownloadConfig
from course_lib.corpus.integrity import Checksum, container_flaw, digest, read_checksum
from course_lib.corpus.transfer import Missing, Transfer, disk_errors, forget
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_write, behind_links, human_size, require_regular

DUMP = "pages-articles-multistream.xml.bz2"


DEFAULTS = DownloadConfig()


@plain(frozen=True)
class Source:
    """A file to download: its name here, its address, and where its checksum may stand."""

    name: str
    url: str
    sums: tuple[tuple[str, str], ...]  # (algorithm, address of the list), the preferred first
    listed_as: str  # pattern of the file's name within those lists
    moving: bool  # whether the address gets new content from time to time
    hint: str = ""  # what a "not found" means


def download(dataset: Dataset, target_folder: Path, date: str = "latest", settings: DownloadConfig = DEFAULTS) -> Path:
    """Downloads a corpus into `target_folder`, or goes on with a download that broke; returns the whole, verified file.

    `date` chooses the Wikipedia dump: `latest`, or a day like 20261101. Prints one line that says what was verified.
    A file that is there and verified is not downloaded again; for `latest` the published checksum is asked for, to see
    if it is still so. Raises UsageError before any request for a wrong data set or date; CourseError with one line for
    what goes wrong later: an earlier complete file is then as it was.
    """
    source = _source(dataset, date, settings)
    target = target_folder / source.name
    record = _record(target, source)
    if record and not source.moving:
        return _done(target, f"already complete ({record['verified']})")
    with (
        disk_errors(target),
        _alone(target),
        Transfer(settings.timeout, settings.retries, settings.backoff) as transfer,
    ):
        published = _published(transfer, source)
        if how := _standing(transfer, target, source, published, record):
            return _done(target, f"already complete ({how})")
        return _done(target, _fetch(transfer, target, source, published))


def _source(dataset: str, date: str, settings: DownloadConfig) -> Source:
    if dataset == "cc100":
        if date != "latest":
            raise UsageError(f"date: {date!r} is not allowed: cc100 has one edition only; leave the date out")
        url = f"{settings.cc100_mirror.rstrip('/')}/ja.txt.xz"
        return Source("ja.txt.xz", url, (("sha256", f"{url}.sha256"),), r"ja\.txt\.xz", moving=False)
    if dataset != "jawiki":
        raise UsageError(f"dataset: {dataset!r} is not allowed: expected jawiki or cc100")
    if date != "latest" and not _is_day(date):
        raise UsageError(f"date: {date!r} is not allowed: expected `latest` or the day of a dump, like 20261101")
    folder = f"{settings.wikipedia_mirror.rstrip('/')}/jawiki"
    base = f"{folder}/{date}/jawiki-{date}-"
    # the lists under latest/ name the files by the dump's real day
    day = "(?:latest|[0-9]{8})" if date == "latest" else date
    return Source(
        name=f"jawiki-{date}-{DUMP}",
        url=base + DUMP,
        sums=(("sha1", f"{base}sha1sums.txt"), ("md5", f"{base}md5sums.txt")),
        listed_as=f"jawiki-{day}-{re.escape(DUMP)}",
        moving=date == "latest",
        hint=f"; dates are like 20261101, or `latest`: {folder}/ lists those there are",
    )


def _is_day(text: str) -> bool:
    if not re.fullmatch(r"[0-9]{8}", text):
        return False
    try:
        datetime.strptime(text, "%Y%m%d")
    except ValueError:
        return False
    return True


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Makes the folder and holds it against a second download of the same file."""
    if target.is_dir():
        raise CourseError(f"{target}: is a directory, expected a file or nothing")
    require_regular(target)
    if target.parent.exists() and not target.parent.is_dir():
        raise CourseError(f"{target.parent}: is a file, expected a folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise CourseError(f"{target}: another process is downloading it") from None
    try:
        yield
    finally:
        lock.release()


def _published(transfer: Transfer, source: Source) -> Checksum | None:
    """The published checksum in the preferred algorithm there is one for; None where none is published."""
    for algorithm, url in source.sums:
        try:
            listing = transfer.text(url)
        except Missing:
            continue
        if found := read_checksum(listing, algorithm, source.listed_as):
            return found
    return None


def _standing(
    transfer: Transfer, target: Path, source: Source, published: Checksum | None, record: dict[str, Any] | None
) -> str:
    """How the file that is there is known to be right; empty if it is not there, or to be replaced."""
    if not target.exists() or not target.stat().st_size:
        return ""
    if published:
        known = record and record.get(published.algorithm)
        if (known or digest(target, published.algorithm)) != published.digest:
            return ""
        return _remember(target, target, source, _how(target, published), published)
    if record:
        return str(record["verified"])
    if transfer.size(source.url) != target.stat().st_size or container_flaw(target, target.suffix[1:]):
        return ""
    return _remember(target, target, source, _how(target, None), None)


def _fetch(transfer: Transfer, target: Path, source: Source, published: Checksum | None) -> str:
    """Downloads and verifies; returns how. A file that turns out wrong is removed: going on with it would not help."""
    # a link stays: its file may be on another disk
    place = behind_links(target)
    part = place.with_name(place.name + ".part")
    try:
        version = transfer.file(source.url, part)
    except Missing as error:
        raise CourseError(f"{error}{source.hint}") from None
    if flaw := _checksum_flaw(part, source, published) if published else container_flaw(part, target.suffix[1:]):
        forget(part)
        what = "wrong checksum" if published else f"not a sound {target.suffix[1:]} container"
        raise CourseError(f"{source.url}: {what}: {flaw}; the download was removed, run the same command again")
    how = _remember(part, target, source, _how(target, published, version.size is not None), published)
    os.replace(part, place)
    forget(part)
    return how


def _checksum_flaw(part: Path, source: Source, published: Checksum) -> str:
    computed = digest(part, published.algorithm)
    if computed == published.digest:
        return ""
    moved = f" (published for {published.name}; `latest` may have moved on meanwhile)" if source.moving else ""
    return f"expected {published.algorithm} {published.digest}{moved}, computed {computed}"


def _how(target: Path, published: Checksum | None, sized: bool = True) -> str:
    if published:
        return f"{published.algorithm} verified"
    size = "its size and the" if sized else "the"
    container = f"{target.suffix[1:]} container's own integrity check"
    return f"no checksum is published for it: only {size} {container} were verified"


def _notes(target: Path) -> Path:
    return target.with_name(f"{target.name}.verified.json")


def _facts(path: Path, source: Source) -> dict[str, Any]:
    stat = path.stat()
    return {"url": source.url, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _record(target: Path, source: Source) -> dict[str, Any] | None:
    """What was noted when `target` was verified; None if it was not, or has been touched since."""
    try:
        found = orjson.loads(_notes(target).read_bytes())
        facts = _facts(target, source)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and facts.items() <= found.items() and "verified" in found else None


def _remember(path: Path, target: Path, source: Source, how: str, published: Checksum | None) -> str:
    """Notes beside `target` that `path`, which is it or becomes it, has been verified; returns how."""
    sums = {published.algorithm: published.digest} if published else {}
    with atomic_write(_notes(target)) as file:
        file.write(orjson.dumps(_facts(path, source) | sums | {"verified": how}, option=orjson.OPT_INDENT_2))
    return how


def _done(target: Path, how: str) -> Path:
    print(f"{target}: {human_size(target.stat().st_size)}, {how}", flush=True)
    return target
