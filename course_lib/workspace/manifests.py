"""The manifest of a product: what it was made of and what is in it, and whether its files are as they were built.

{"product": "corpus/wikipedia", "profile": "tiny", "built": "2026-11-30T09:15:41+0000", "seconds": 12.3,
 "identity": {"min_chars": 100, …},              the settings that fix the content
 "code": {"corpus": "5f0c…", …},                 sources.digests
 "inputs": {"data/jawiki-sample.xml.bz2": {"bytes": …, "sha256": …, "mtime_ns": …}, "corpus/world": "81b0…"},
 "outputs": {"documents.jsonl": {"bytes": …, "sha256": …}, …},
 "counts": {"documents": 348}, "versions": {"numpy": "2.3.5", …}}
"""

import json
import re
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Required

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from course_lib import __version__, files, unmarked

FILE = "manifest.json"
Manifest = dict[str, Any]
# Their versions are recorded; another version makes no product stale.
LIBRARIES = (
    "numpy", "lxml", "rensa", "neologdn", "fugashi", "jumandic", "tokenizers", "sentencepiece", "transformers", "torch",
    "deepspeed",
)  # fmt: skip
# What a run notes about itself, such as times: no product is made from it.
NOTES = ("log.jsonl", "deepspeed.json")
# No product takes longer to build: 30 years.
MOST_SECONDS = 1e9
# What no path may hold: a NUL character, and halves of characters, which are no UTF-8.
NO_PATH = re.compile("[\0\ud800-\udfff]")


class _Output(TypedDict):
    """A file of the product."""

    bytes: int
    sha256: str


class _Input(_Output):
    """A file that the product was built from."""

    mtime_ns: int


class _Content(TypedDict, total=False):
    """The parts of a manifest that the course reads. Manifests of earlier versions have settings and no identity."""

    settings: dict[str, Any]
    identity: dict[str, Any]
    inputs: Required[dict[str, str | _Input]]
    outputs: Required[dict[str, _Output]]
    counts: dict[str, Any]
    code: dict[str, str]
    built: str
    seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)]


_CONTENT = TypeAdapter(_Content)


def read(folder: Path) -> Manifest | None:
    """Return the manifest in a product's folder, or None if it is missing or invalid.

    It may come from an archive of somebody else: one with outputs outside of the folder is invalid.
    """
    loaded = unmarked.json_of(folder / FILE)
    try:
        _CONTENT.validate_python(loaded, strict=True)
    except ValidationError:
        return None
    return loaded if all(map(_is_inside, loaded["outputs"])) else None


def _is_inside(name: str) -> bool:
    """Return whether a relative path names something inside its folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and not NO_PATH.search(name)


def versions() -> dict[str, str]:
    """Return the versions of the course and of the libraries that are installed."""
    found = {"course_lib": __version__}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def outputs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what a manifest says about the files that a build wrote into a folder."""
    # The file that says what the course wrote into the folder is written after the manifest.
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / files.FILE_LIST]
    return {str(path.relative_to(folder)): facts(path) for path in paths}


def facts(path: Path) -> dict[str, Any]:
    """Return size and digest of a file."""
    return {"bytes": path.stat().st_size, "sha256": digest_of(path)}


def outputs_digest(manifest: Manifest) -> str:
    """Return one digest of all outputs but NOTES, which the manifests of products made from them record."""
    content = {name: facts for name, facts in manifest["outputs"].items() if name not in NOTES}
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def changed_output(folder: Path, manifest: Manifest) -> str | None:
    """Return the first output that is missing or not as it was built, or None."""
    return next((name for name, facts in manifest["outputs"].items() if not is_as_built(folder, name, facts)), None)


def is_as_built(folder: Path, name: str, facts: _Output) -> bool:
    """Return whether an output is as it was built. It is read if it is not older than the manifest."""
    path, built = folder / name, (folder / FILE).stat().st_mtime_ns
    if not path.is_file() or path.stat().st_size != facts["bytes"]:
        return False
    return path.stat().st_mtime_ns < built or digest_of(path) == facts["sha256"]


def is_same_file(path: Path, facts: Manifest) -> bool:
    """Return whether an input file is the one of the manifest. It is read if it has another modification time."""
    if not path.exists() or path.stat().st_size != facts["bytes"]:
        return False
    digest: str = facts["sha256"]
    return path.stat().st_mtime_ns == facts["mtime_ns"] or digest_of(path) == digest


def digest_of(path: Path) -> str:
    """Return the SHA-256 digest of a file, which this process reads again only if it has changed."""
    status = path.stat()
    return _read_digest(path, status.st_ino, status.st_size, status.st_mtime_ns)


@cache
def _read_digest(path: Path, *_status: int) -> str:
    return files.sha256(path)
