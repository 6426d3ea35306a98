"""How one product is made. Chapters list theirs, the workspace runs them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Product:
    """How one product is made."""

    name: str  # "<chapter>/<product>"
    build: Callable[[Path, list[Path]], dict[str, Any]]  # (empty folder to fill, inputs as paths) -> counts
    settings: Any  # a settings dataclass or plain JSON values; a change makes the product stale
    inputs: tuple[Path | str, ...]  # files, or names of other products (given to build as their folders)
    code: tuple[str, ...] = ()  # packages or modules of course_lib whose change makes the product stale
