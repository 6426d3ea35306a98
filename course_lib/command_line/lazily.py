"""Imports that happen when a module is first used: `with on_first_use(): from package import module`."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


class _Finder(MetaPathFinder):
    """Finds modules on the path as Python does, and gives them Python's loader that waits for the first use."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def on_first_use() -> Iterator[None]:
    """Delay the imports in the block, of modules that are not imported yet, until an attribute of theirs is read."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
