"""Verification of downloaded files by a published checksum, or by the checks inside the .xz or .bz2 container.

This module reads files and checksum lists; it downloads nothing and removes nothing.
"""

import hashlib
import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.files import CHUNK, OPENERS
from course_lib.progress import progress

HEX_DIGITS = {"sha256": 64, "sha1": 40, "md5": 32}


@dataclass(frozen=True)
class Checksum:
    """A published checksum: the digest in lower-case hexadecimal, and the file name in the publisher's list."""

    algorithm: str
    digest: str
    name: str


def read_checksum(listing: str, algorithm: str, name: str) -> Checksum | None:
    """The first checksum in a list whose file name matches; None if no name does.

    Args:
        listing: the text of the list, in the format that `sha1sum` writes.
        algorithm: a key of HEX_DIGITS.
        name: a regular expression for the file name.
    """
    line = re.compile(rf"([0-9a-fA-F]{{{HEX_DIGITS[algorithm]}}})[ \t]+\*?(?:\./)?({name})[ \t]*")
    for text in listing.splitlines():
        if match := line.fullmatch(text):
            return Checksum(algorithm, match[1].lower(), match[2])
    return None


def digest(path: Path, algorithm: str) -> str:
    """The checksum of a file in hexadecimal; a progress bar shows the reading."""
    state = hashlib.new(algorithm, usedforsecurity=False)
    for chunk in _chunks(path):
        state.update(chunk)
    return state.hexdigest()


def container_flaw(path: Path, kind: str) -> str:
    """What is wrong with an `xz` or `bz2` container, with the byte position; "" if the container is intact.

    The whole file is decompressed in constant memory and the result is discarded. Every block has its own checksum, the
    last stream must be complete, and only the padding of xz may follow it.
    """
    with path.open("rb") as file, _bar(path) as bar:
        stream = OPENERS[f".{kind}"](file)
        try:
            while stream.read1(CHUNK):
                bar.update(file.tell() - bar.n)
        # bz2 raises OSError for bad data
        except (lzma.LZMAError, OSError, ValueError, EOFError) as error:
            return f"{error}; read up to byte {file.tell()} of {path.stat().st_size}"
    return ""


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file, _bar(path) as bar:
        while chunk := file.read(CHUNK):
            yield chunk
            bar.update(len(chunk))


def _bar(path: Path) -> Any:
    return progress(path.stat().st_size, "B", f"verifying {path.name.removesuffix('.part')}")
