"""Digests of the library's sources, which say whether a product was made by other code than today's.

A digest is that of the syntax tree: comments, docstrings and line breaks do not count, and every version of Python
gives the same (compared: 3.11 to 3.13). After a source was edited, nobody knows which code this process runs: modules
that it imported before are as they were, workers and ranks that it starts load the edited ones.
"""

import ast
import os
import time
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).parents[1]
# Modules of a package that play no part in building products.
NO_PRODUCT = ("figures.py", "diagrams.py")
# Modules, and tables that they read.
PATTERNS = ("*.py", "*.tsv")
# The sources as they were when this process first imported products; 1.6 MB, read in 10 ms.
LOADED = {path: path.read_bytes() for pattern in PATTERNS for path in sorted(LIBRARY.rglob(pattern))}
# What a manifest records instead of the digest of a source that was edited: no digest, and of this process alone.
UNKNOWN = "edited while "
EDITED = f"{UNKNOWN}process {os.getpid()} of {time.time_ns()} ran"


@cache
def digest(name: str) -> str:
    """Return the digest of a source as this process loaded it: `corpus` is a package, `world/tale.py` a module."""
    if not _loaded(name):
        raise FileNotFoundError(f"{LIBRARY / name}: no such package or module")
    return _digest(_loaded(name))


def is_edited(name: str) -> bool:
    """Return whether a source has another digest now than when this process loaded it."""
    source = LIBRARY / name
    listed = [source]
    if not source.is_file():
        listed = [path for each in PATTERNS for path in sorted(source.glob(each))]
    now = {path: path.read_bytes() for path in listed if _is_part(path, source)}
    try:
        return now != _loaded(name) and _digest(now) != digest(name)
    except SyntaxError:
        # Somebody is editing it.
        return True


def digests(names: Iterable[str]) -> dict[str, str]:
    """Return what the manifest of a product records that is made now, by name: digests, or EDITED."""
    return {name: EDITED if is_edited(name) else digest(name) for name in names}


def difference(names: Iterable[str], recorded: Mapping[str, str]) -> str | None:
    """Return the first source that is not the one that a manifest recorded, or None."""
    for name in dict.fromkeys([*names, *recorded]):
        if name not in names or recorded.get(name) not in (digest(name), EDITED):
            return name
    return None


def is_unknown(recorded: str) -> bool:
    """Return whether a manifest records no digest, because the source was edited before the product was built."""
    return recorded.startswith(UNKNOWN)


def _loaded(name: str) -> dict[Path, bytes]:
    return {path: content for path, content in LOADED.items() if _is_part(path, LIBRARY / name)}


def _is_part(path: Path, source: Path) -> bool:
    """Return whether a file belongs to a source."""
    return path == source or (path.parent == source and path.name not in NO_PRODUCT)


def _digest(files: Mapping[Path, bytes]) -> str:
    trees = (_tree(ast.parse(content)).encode() if path.suffix == ".py" else content for path, content in files.items())
    return sha256(b"\0".join(trees)).hexdigest()


def _tree(node: Any) -> str:
    """Return a syntax tree as text, without what differs between versions of Python: fields that are empty."""
    if isinstance(node, list):
        return "[" + " ".join(_tree(each) for each in node if not _does_nothing(each)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = [type(node).__name__]
    for name in node._fields:
        value = getattr(node, name, None)
        if value is not None and value != []:
            parts += [name, _tree(value)]
    return "(" + " ".join(parts) + ")"


def _does_nothing(node: Any) -> bool:
    """Return whether a node is a statement that is only a constant, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
