"""The list of chapters in course order, and of the products of each. No other module has this list."""

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from course_lib.errors import UsageError
from course_lib.paths import NOTEBOOKS
from course_lib.product import Product


@dataclass(frozen=True)
class Chapter:
    """One chapter: a package of course_lib with a `products` module, and a notebook."""

    number: int
    package: str
    notebook: str
    title: str

    @property
    def path(self) -> Path:
        """Path of the notebook in the checkout."""
        return NOTEBOOKS / f"{self.notebook}.ipynb"


CHAPTERS = (
    Chapter(1, "corpus", "01_corpus_prep", "Corpus"),
    Chapter(2, "japanese", "02_normalize_and_segment", "Normalization and segmentation"),
    Chapter(3, "subword", "03_tokenizers", "Tokenizers"),
    Chapter(4, "pretrain", "04_gpt2_zero2_pretraining", "GPT-2 pretraining with DeepSpeed ZeRO-2"),
    Chapter(5, "gptsan", "05_gptsan_extra_stage", "GPTSAN: extra stage and spout"),
    Chapter(6, "prefix", "06_prefix_tuning", "Prefix tuning"),
    Chapter(7, "serving", "07_fastertransformer_conversion", "FasterTransformer conversion and serving"),
)


def select(name: str) -> list[Chapter]:
    """Selects chapters by number, package name, notebook name or 'all'.

    Raises UsageError with the allowed names if there is no such chapter.
    """
    chosen = [c for c in CHAPTERS if name in ("all", str(c.number), c.package, c.notebook)]
    if not chosen:
        allowed = ", ".join(f"{c.number}|{c.package}" for c in CHAPTERS)
        raise UsageError(f"chapter {name!r} does not exist; allowed: all, {allowed}")
    return chosen


def products() -> dict[str, Product]:
    """All products of the course in the current profile: a mapping from name to product, in building order."""
    by_name: dict[str, Product] = {}
    for chapter in CHAPTERS:
        own: list[Product] = import_module(f"course_lib.{chapter.package}.products").products()
        by_name |= {product.name: product for product in own}
        if chapter.path.exists():
            by_name[f"{chapter.package}/notebook"] = Product(
                name=f"{chapter.package}/notebook",
                build=partial(_run_notebook, chapter),
                settings={},
                inputs=(chapter.path, *(product.name for product in own)),
                code=(
                    chapter.package,
                    f"{chapter.package}/figures.py",
                    "figures.py",
                    f"exercises/{chapter.package}.py",
                ),
            )
    return by_name


def _run_notebook(chapter: Chapter, folder: Path, _inputs: list[Path]) -> dict[str, Any]:
    from course_lib.notebooks import execute

    return {"cells": execute(chapter.path, folder / chapter.path.name)}
