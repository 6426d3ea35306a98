"""Downloader for Japanese Wikipedia dumps and the Japanese part of CC-100, from the publisher or a mirror.

A file gets its final name only when it is complete and verified. Until then it is `<name>.part`, which a later call
resumes. `<name>.verified.json` in the same folder records what was verified. transfer.py sends the HTTP requests,
integrity.py verifies the file, and wikipedia.py and webtext.py read its content.

Sources: https://dumps.wikimedia.org/jawiki/ (dumps with SHA-1 and MD5 checksums), https://data.statmt.org/cc-100/ (no
known checksums).
"""

import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from course_lib.corpus.config import Dataset, DownloadConfig
from course_lib.corpus.integrity import Checksum, Record, container_flaw, digest, load_record, read_checksum
from course_lib.corpus.transfer import Missing, Transfer, disk_errors, forget
from course_lib.errors import CourseError, UsageError
from course_lib.files import behind_links, human_size, require_regular
from course_lib.language.words import mark, tr

DUMP = "pages-articles-multistream{part}.xml.bz2"
DEFAULTS = DownloadConfig()
# What was verified.
SUM = mark("{algorithm} verified")
CONTAINER = mark("no checksum is published for it: only the {kind} container's own integrity check were verified")
SIZE_AND_CONTAINER = mark(
    "no checksum is published for it: only its size and the {kind} container's own integrity check were verified"
)


@dataclass(frozen=True)
class Source:
    """A file to download: its local name, its URL and the URLs of its checksum lists."""

    name: str
    url: str
    sums: tuple[tuple[str, str], ...]  # (algorithm, URL of the checksum list), the preferred one first
    listed_as: str  # regular expression for the file's name in these lists
    moving: bool  # whether the content at the URL changes over time, as it does for `latest`
    dumps: str = ""  # URL of the list of dumps, for the "not found" message

    @property
    def kind(self) -> str:
        """The container format: `xz` or `bz2`."""
        return Path(self.name).suffix[1:]


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
    """Download the .xz or .bz2 file at an address, or resume the download, and return the verified file's path.

    Raises UsageError if the name has another suffix, and CourseError as `download` does.
    """
    name = url.rpartition("/")[2]
    if not name.endswith((".xz", ".bz2")):
        raise UsageError(f"{url}: only names ending in .xz or .bz2 can be verified; download other files yourself")
    return _complete(Source(name, url, (), "", moving=False), target_folder, settings)


def _complete(source: Source, target_folder: Path, settings: DownloadConfig, part: int | None = None) -> Path:
    """Return the path of the complete, verified file, which is downloaded if necessary."""
    target = target_folder / source.name
    record = _record(target, source)
    if record and not source.moving:
        return _done(target, source, record, earlier=True)
    with (
        disk_errors(target),
        _alone(target),
        Transfer(settings.timeout, settings.retries, settings.backoff) as transfer,
    ):
        if part is not None:
            source = _located(transfer, source, part)
            record = _record(target, source)
        published = _published(transfer, source)
        if record := _standing(transfer, target, source, published, record):
            return _done(target, source, record, earlier=True)
        return _done(target, source, _fetch(transfer, target, source, published))


def _source(dataset: str, date: str, settings: DownloadConfig, part: int | None) -> Source:
    if part is not None and (dataset != "jawiki" or part < 1):
        raise UsageError(f"part: {part} is not allowed: a number from 1, for jawiki only")
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
    # The lists under latest/ use the actual date of the dump in file names.
    day = "(?:latest|[0-9]{8})" if date == "latest" else date
    name = DUMP.format(part=part or "")
    # The published name of a part ends in the range of its page ids, as in `1.xml-p1p114794.bz2`.
    pages = "" if part is None else r"-p[0-9]+p[0-9]+"
    return Source(
        name=f"jawiki-{date}-{name}",
        url=base + name,
        sums=(("sha1", f"{base}sha1sums.txt"), ("md5", f"{base}md5sums.txt")),
        listed_as=rf"jawiki-{day}-{re.escape(name.removesuffix('.bz2'))}{pages}\.bz2",
        moving=date == "latest",
        dumps=f"{folder}/",
    )


def _located(transfer: Transfer, source: Source, part: int) -> Source:
    """Return the source of a part with its URL, which is in the checksum lists. Raises CourseError if it is in none."""
    published = _published(transfer, source)
    if published is None:
        raise CourseError(_with_dates(f"part: {part} is not in {source.sums[0][1]}", source))
    # The lists under latest/ use the actual date, the files under latest/ do not.
    folder, _, name = source.url.rpartition("/")
    date = name.split("-")[1]
    return replace(source, url=f"{folder}/jawiki-{date}-{published.name.split('-', 2)[2]}")


def _with_dates(problem: str, source: Source) -> str:
    """Return the message of an error with advice about dates, if the file has one."""
    if not source.dumps:
        return problem
    return f"{problem}; a date is a day such as 20261101, or `latest`; {source.dumps} lists the dumps"


def _is_day(text: str) -> bool:
    try:
        return f"{datetime.strptime(text, '%Y%m%d'):%Y%m%d}" == text
    except ValueError:
        return False


def _alone(target: Path) -> AbstractContextManager[object]:
    """Create the target folder and return a held lock, so that no second process downloads the same file."""
    if target.is_dir():
        raise CourseError(f"{target}: is a directory, expected a file or nothing")
    require_regular(target)
    if target.parent.exists() and not target.parent.is_dir():
        raise CourseError(f"{target.parent}: is a file, expected a folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        return FileLock(target.with_name(f".{target.name}.lock")).acquire(timeout=0)
    except Timeout:
        raise CourseError(f"{target}: another process is downloading it") from None


def _published(transfer: Transfer, source: Source) -> Checksum | None:
    """Return the published checksum, for the preferred algorithm if there are several, or None if there is none."""
    for algorithm, url in source.sums:
        try:
            listing = transfer.text(url)
        except Missing:
            continue
        if checksum := read_checksum(listing, algorithm, source.listed_as):
            return checksum
    return None


def _standing(
    transfer: Transfer, target: Path, source: Source, published: Checksum | None, record: Record | None
) -> Record | None:
    """Return the record for the existing file; None if there is no file or it must be downloaded again."""
    if not target.exists() or not (size := target.stat().st_size):
        return None
    if published:
        known = record and record.sums.get(published.algorithm)
        sound = (known or digest(target, published.algorithm)) == published.digest
    elif record:
        return record
    else:
        sound = transfer.size(source.url) == size and not container_flaw(target, source.kind)
    return _remember(target, target, source, Record(source.url, size=size), published) if sound else None


def _fetch(transfer: Transfer, target: Path, source: Source, published: Checksum | None) -> Record:
    """Download and verify the file, and return its record.

    A file that fails verification is removed, because resuming it would not help.
    """
    # Keep a symbolic link, because the file it points to may be on another disk.
    destination = behind_links(target)
    part = destination.with_name(destination.name + ".part")
    try:
        version = transfer.file(source.url, part)
    except Missing as error:
        raise CourseError(_with_dates(str(error), source)) from None
    if flaw := _checksum_flaw(part, source, published) if published else container_flaw(part, source.kind):
        forget(part)
        what = "wrong checksum" if published else f"not a sound {source.kind} container"
        raise CourseError(f"{source.url}: {what}: {flaw}; the download was removed, run the same command again")
    record = _remember(part, target, source, version, published)
    os.replace(part, destination)
    forget(part)
    return record


def _checksum_flaw(part: Path, source: Source, published: Checksum) -> str:
    computed = digest(part, published.algorithm)
    if computed == published.digest:
        return ""
    wanted = f"{published.algorithm} {published.digest}"
    if source.moving:
        wanted = f"{wanted} (published for {published.name}; `latest` may point to a newer dump by now)"
    return f"expected {wanted}, computed {computed}"


def _notes(target: Path) -> Path:
    return target.with_name(f"{target.name}.verified.json")


def _record(target: Path, source: Source) -> Record | None:
    """Return the record for `target`; None if it was never verified or has changed since."""
    record = load_record(_notes(target), source.url)
    if not record or not target.exists():
        return None
    stat = target.stat()
    unchanged = (record.size, record.mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    return record if record.verified and unchanged else None


def _remember(path: Path, target: Path, source: Source, version: Record, published: Checksum | None) -> Record:
    """Save and return the record for a file that was just verified.

    `path` is `target` itself or the file that will replace it.
    """
    how = SUM if published else CONTAINER if version.size is None else SIZE_AND_CONTAINER
    said = how.format(algorithm=published and published.algorithm, kind=source.kind)
    stat, sums = path.stat(), {published.algorithm: published.digest} if published else {}
    record = replace(version, size=stat.st_size, mtime_ns=stat.st_mtime_ns, sums=sums, verified=said)
    record.save(_notes(target))
    return record


def _done(target: Path, source: Source, record: Record, earlier: bool = False) -> Path:
    """Print what was verified, and return the file. `earlier` says that it was complete before."""
    how = _said(source, record)
    if earlier:
        how = tr("already complete ({verified})", verified=how)
    print(f"{target}: {human_size(target.stat().st_size)}, {how}", flush=True)
    return target


def _said(source: Source, record: Record) -> str:
    """Return what was verified in the reader's language; the record has it in English."""
    facts = {"algorithm": next(iter(record.sums), ""), "kind": source.kind}
    for message in (SUM, SIZE_AND_CONTAINER, CONTAINER):
        if record.verified == message.format(**facts):
            return tr(message, **facts)
    return record.verified
