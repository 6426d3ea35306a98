"""The chapters in course order, and the products for each chapter. No other module contains this list."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from course_lib.corpus import products as corpus
from course_lib.errors import UsageError
from course_lib.gptsan import products as gptsan
from course_lib.japanese import products as japanese
from course_lib.language.words import language, mark
from course_lib.paths import NOTEBOOKS
from course_lib.prefix import products as prefix
from course_lib.pretrain import products as pretrain
from course_lib.serving import products as serving
from course_lib.subword import products as subword
from course_lib.workspace.products import Definition, Product


@dataclass(frozen=True)
class Chapter:
    """A chapter: a course_lib package, its products in the current profile, and its notebooks."""

    number: int
    package: str
    products: Callable[[], list[Product]]
    # File name without its ending → module in course_lib.exercises, in reading order.
    notebooks: dict[str, str]
    title: str

    @property
    def paths(self) -> list[Path]:
        """The paths to the notebooks in the checkout."""
        return [NOTEBOOKS / f"{name}.ipynb" for name in self.notebooks]


CHAPTERS = (
    Chapter(1, "corpus", corpus.products, {"01_corpus_prep": "corpus"}, mark("Corpus")),
    Chapter(
        2,
        "japanese",
        japanese.products,
        {"02_normalize_and_segment": "japanese"},
        mark("Normalization and segmentation"),
    ),
    Chapter(3, "subword", subword.products, {"03_tokenizers": "subword"}, mark("Tokenizers")),
    Chapter(
        4,
        "pretrain",
        pretrain.products,
        {"04_gpt2_by_hand": "by_hand", "04_gpt2_zero2_pretraining": "pretrain"},
        mark("GPT-2 pretraining with DeepSpeed ZeRO-2"),
    ),
    Chapter(5, "gptsan", gptsan.products, {"05_gptsan_extra_stage": "gptsan"}, mark("GPTSAN: extra stage and spout")),
    Chapter(6, "prefix", prefix.products, {"06_prefix_tuning": "prefix"}, mark("Prefix tuning")),
    Chapter(
        7,
        "serving",
        serving.products,
        {"07_fastertransformer_conversion": "serving"},
        mark("FasterTransformer conversion and serving"),
    ),
)


def select(name: str) -> list[Chapter]:
    """Select chapters by number, package name, notebook name or 'all'.

    Raises UsageError listing the allowed names if there is no such chapter.
    """
    chosen = [c for c in CHAPTERS if name in ("all", str(c.number), c.package, *c.notebooks)]
    if not chosen:
        allowed = ", ".join(f"{c.number}|{c.package}" for c in CHAPTERS)
        raise UsageError(f"chapter {name!r} does not exist; allowed: all, {allowed}")
    return chosen


def products() -> list[Product]:
    """Return all products in the current profile, including executed notebooks, in build order."""
    listed = []
    for chapter in CHAPTERS:
        own = chapter.products()
        listed += own
        for path in filter(Path.exists, chapter.paths):
            # A chapter's last notebook is its main one.
            name = "notebook" if path == chapter.paths[-1] else path.stem
            listed.append(Product(f"{chapter.package}/{name}", partial(_executed, chapter, path, tuple(own))))
    return listed


def _executed(chapter: Chapter, notebook: Path, own: tuple[Product, ...]) -> Definition:
    package = files("course_lib")
    shown = (f"{chapter.package}/{name}.py" for name in ("figures", "diagrams"))
    code = (
        chapter.package,
        *(name for name in shown if package.joinpath(name).is_file()),
        "notebooks",
        f"exercises/{chapter.notebooks[notebook.stem]}.py",
    )
    return Definition(partial(_run_notebook, notebook), {}, (notebook, *own), code)


def _run_notebook(notebook: Path, folder: Path, _inputs: list[Path]) -> dict[str, Any]:
    """Execute a notebook, or its edition in the reader's language, which has the same code."""
    from course_lib.notebooks.execution import execute

    edition = notebook.parent / language() / notebook.name
    return {"cells": execute(edition if edition.is_file() else notebook, folder / notebook.name)}
