"""Whether a file is what its publisher put out: by a published checksum, or at least by the container's own checks.

It reads files and lists of checksums; it fetches nothing and removes nothing.
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
    """A published checksum: its digest in lower-case hexadecimal, and the name it was published for."""

    algorithm: str
    digest: str
    name: str


def read_checksum(listing: str, algorithm: str, name: str) -> Checksum | None:
    """The checksum of the first file whose name fits the pattern `name` in a list as `sha1sum` writes it, or None."""
    line = re.compile(rf"([0-9a-fA-F]{{{HEX_DIGITS[algorithm]}}})[ \t]+\*?(?:\./)?({name})[ \t]*")
    for text in listing.splitlines():
        if found := line.fullmatch(text):
            return Checksum(algorithm, found[1].lower(), found[2])
    return None


def digest(path: Path, algorithm: str) -> str:
    """The checksum of a file in hexadecimal, under a progress bar."""
    state = hashlib.new(algorithm, usedforsecurity=False)
    for chunk in _chunks(path):
        state.update(chunk)
    return state.hexdigest()


def container_flaw(path: Path, kind: str) -> str:
    """Why a file is no sound `xz` or `bz2` container, with the place [byte]; empty if it is sound.

    All of it is decompressed and nothing kept, in constant memory: every block carries a check of its own, the last
    stream must end, and nothing but the padding of xz may follow it.
    """
    with path.open("rb") as file, _bar(path) as bar:
        stream = OPENERS[f".{kind}"](file)
        try:
            while stream.read1(CHUNK):
                bar.update(file.tell() - bar.n)
        except (lzma.LZMAError, OSError, ValueError, EOFError) as error:  # OSError is what bz2 raises for bad data
            return f"{error}; read up to byte {file.tell()} of {path.stat().st_size}"
    return ""


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file, _bar(path) as bar:
        while chunk := file.read(CHUNK):
            yield chunk
            bar.update(len(chunk))


def _bar(path: Path) -> Any:
    return progress(path.stat().st_size, "B", f"verifying {path.name.removesuffix('.part')}")
