"""The class that describes how a product is built. Chapters list their products; workspace.py builds them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Product:
    """A description of one product and of how it is built."""

    name: str  # "<chapter>/<product>"
    build: Callable[[Path, list[Path]], dict[str, Any]]  # (empty folder to fill, paths of the inputs) → counts
    settings: Any  # a settings dataclass or plain JSON values; a change makes the product stale
    inputs: tuple[Path | str, ...]  # files, or names of other products, whose folders `build` receives
    code: tuple[str, ...] = ()  # packages or modules of course_lib; a change makes the product stale
