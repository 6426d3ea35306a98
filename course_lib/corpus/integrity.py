"""Verification of downloaded files by a published checksum, or by the checks inside the .xz or .bz2 container.

`Record` stores the result. This module neither downloads nor removes files.
"""

import hashlib
import lzma
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from course_lib.files import CHUNK, OPENERS, atomic_write
from course_lib.language.words import tr
from course_lib.progress import progress

HEX_DIGITS = {"sha256": 64, "sha1": 40, "md5": 32}


@dataclass(frozen=True)
class Checksum:
    """A published checksum: the digest in lowercase hexadecimal, and the file name in the publisher's list."""

    algorithm: str
    digest: str
    name: str


@dataclass(frozen=True)
class Record:
    """A record of a downloaded file and its verification, stored as JSON next to the file.

    The record of a partial download has only the first four fields, which identify the version of the remote file as
    stated by its server. They show whether later bytes belong to the same content.
    """

    url: str
    etag: str = ""
    modified: str = ""  # the Last-Modified header
    size: int | None = None  # bytes; None if the server does not say
    mtime_ns: int = 0  # modification time of the verified file [ns]
    sums: dict[str, str] = field(default_factory=dict)  # algorithm → verified digest
    verified: str = ""  # what was verified, in words

    @property
    def validator(self) -> str:
        """The If-Range value: a strong ETag, else the date, else "" if the download cannot be resumed safely."""
        strong = self.etag.startswith('"') and self.etag.isascii() and self.etag.isprintable()
        dated = self.modified.isascii() and self.modified.isprintable()
        return self.etag if strong else self.modified if dated else ""

    def save(self, path: Path) -> None:
        """Write the record to a JSON file."""
        with atomic_write(path) as file:
            file.write(orjson.dumps(self, option=orjson.OPT_INDENT_2))


def load_record(path: Path, url: str) -> Record | None:
    """Return the record in a JSON file, or None if the file is missing or invalid or its record is for another URL."""
    try:
        record = TypeAdapter(Record).validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return record if record.url == url else None


def read_checksum(listing: str, algorithm: str, name: str) -> Checksum | None:
    """Return the first checksum in a list in `sha1sum` format whose file name matches; None if no name matches.

    `algorithm` is a key of HEX_DIGITS, and `name` is a regular expression for the file name.
    """
    line = re.compile(rf"([0-9a-fA-F]{{{HEX_DIGITS[algorithm]}}})[ \t]+\*?(?:\./)?({name})[ \t]*")
    for text in listing.splitlines():
        if match := line.fullmatch(text):
            return Checksum(algorithm, match[1].lower(), match[2])
    return None


def digest(path: Path, algorithm: str) -> str:
    """Return the checksum of a file in hexadecimal, showing a progress bar."""
    state = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file, _bar(path) as bar:
        while chunk := file.read(CHUNK):
            state.update(chunk)
            bar.update(len(chunk))
    return state.hexdigest()


def container_flaw(path: Path, kind: str) -> str:
    """Return what is wrong with an `xz` or `bz2` container, with the byte position; "" if the container is intact.

    The whole file is decompressed in constant memory and the result is discarded. Every block has its own checksum, the
    last stream must be complete, and only xz padding may follow it.
    """
    with path.open("rb") as file, _bar(path) as bar:
        stream = OPENERS[f".{kind}"](file)
        try:
            while stream.read1(CHUNK):
                bar.update(file.tell() - bar.n)
        # bz2 raises OSError for bad data.
        except (lzma.LZMAError, OSError, ValueError, EOFError) as error:
            return f"{error}; read up to byte {file.tell()} of {path.stat().st_size}"
    return ""


def _bar(path: Path) -> Any:
    return progress(path.stat().st_size, "B", tr("verifying {name}", name=path.name.removesuffix(".part")))
