"""The chapters in course order, by name, and the products for each chapter. No other module contains this list."""

import json
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from course_lib.errors import UsageError
from course_lib.language.words import language, tr, tr_noop
from course_lib.paths import NOTEBOOKS
from course_lib.workspace.products import Product


@dataclass(frozen=True)
class Chapter:
    """A chapter: a course_lib package, and its notebooks."""

    number: int
    package: str
    title: str
    # File name without its ending → module in course_lib.exercises, in reading order.
    notebooks: dict[str, str]
    # The notebook that is executed as `<package>/notebook`: the last one, unless this names another.
    main: str = ""

    @property
    def paths(self) -> list[Path]:
        """The paths to the notebooks in the checkout."""
        return [NOTEBOOKS / f"{name}.ipynb" for name in self.notebooks]

    def products(self) -> list[Product]:
        """Return the chapter's products in the current profile, in build order."""
        found: list[Product] = import_module(f"course_lib.{self.package}.products").products()
        return found

    def executed(self) -> list[Product]:
        """Return the chapter's notebooks as products, which are built by executing them."""
        library, found = Path(__file__).parents[1], []
        made_by_chapter = self.products()
        drawn = [f"{self.package}/{name}.py" for name in ("figures", "diagrams")]
        shown = [self.package, *(name for name in drawn if (library / name).is_file()), "notebooks"]
        for path in filter(Path.exists, self.paths):
            main = self.main or self.paths[-1].stem
            name = f"{self.package}/{'notebook' if path.stem == main else path.stem}"
            code = (*shown, f"exercises/{self.notebooks[path.stem]}.py")
            found.append(Product(name, partial(_run_notebook, path), inputs=(path, *made_by_chapter), code=code))
        return found


CHAPTERS = (
    Chapter(1, "corpus", tr_noop("Corpus"), {"01_corpus_prep": "corpus"}),
    Chapter(2, "japanese", tr_noop("Normalization and segmentation"), {"02_normalize_and_segment": "japanese"}),
    Chapter(3, "subword", tr_noop("Tokenizers"), {"03_tokenizers": "subword"}),
    Chapter(4, "pretrain", tr_noop("GPT-2 pretraining with DeepSpeed ZeRO-2"),
            {"04_gpt2_by_hand": "by_hand", "04_gpt2_to_llama": "llama", "04_gpt2_zero2_pretraining": "pretrain"}),
    Chapter(5, "gptsan", tr_noop("GPTSAN: extra stage and spout"), {"05_gptsan_extra_stage": "gptsan"}),
    Chapter(6, "prefix", tr_noop("Prefix tuning"), {"06_prefix_tuning": "prefix", "06_rewards": "rewards"},
            main="06_prefix_tuning"),
    Chapter(7, "serving", tr_noop("FasterTransformer conversion and serving"),
            {"07_fastertransformer_conversion": "serving"}),
)  # fmt: skip


def select(name: str) -> list[Chapter]:
    """Select chapters by number, package name, notebook name or 'all'."""
    chosen = [c for c in CHAPTERS if name in ("all", str(c.number), c.package, *c.notebooks)]
    if not chosen:
        allowed = ", ".join(f"{c.number}|{c.package}" for c in CHAPTERS)
        raise UsageError(tr("chapter {name!r} does not exist; allowed: all, {allowed}", name=name, allowed=allowed))
    return chosen


def products() -> list[Product]:
    """Return all products in the current profile, in build order."""
    return [product for chapter in CHAPTERS for product in chapter.products()]


def _run_notebook(notebook: Path, folder: Path, _inputs: list[Path], _settings: Any) -> dict[str, Any]:
    """Execute a notebook, or its edition in the reader's language if that has the same cells."""
    from course_lib.notebooks.execution import execute

    edition = notebook.parent / language() / notebook.name
    # An edition that is behind the English notebook may not run with today's library.
    is_in_step = edition.is_file() and _cells(edition) == _cells(notebook)
    return {"cells": execute(edition if is_in_step else notebook, folder / notebook.name)}


def _cells(notebook: Path) -> list[str]:
    return [cell["id"] for cell in json.loads(notebook.read_text(encoding="utf8"))["cells"]]
