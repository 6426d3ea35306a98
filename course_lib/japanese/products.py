"""Products for chapter 2: the documents from chapter 1 as segmented lines."""

from functools import partial
from pathlib import Path
from typing import Any

from course_lib.corpus import products as corpus
from course_lib.japanese.config import SegmentConfig
from course_lib.parallel import default_workers
from course_lib.settings import config
from course_lib.workspace.products import Definition, Product, product

# File name inside each product.
LINES = "lines.txt"


def products() -> list[Product]:
    """Return the chapter's products, in build order."""
    return [WIKIPEDIA, WEBTEXT]


@product("japanese/wikipedia")
def WIKIPEDIA() -> Definition:
    """The Wikipedia documents as segmented lines."""
    return _segmented(corpus.WIKIPEDIA)


@product("japanese/webtext")
def WEBTEXT() -> Definition:
    """The web text documents as segmented lines."""
    return _segmented(corpus.WEBTEXT)


def _segmented(documents: Product) -> Definition:
    settings = config.section("japanese.segment", SegmentConfig)
    return Definition(partial(_segment, settings), settings, (documents,), ("japanese",))


def _segment(settings: SegmentConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.japanese.pipeline import segment_file

    report = segment_file(inputs[0] / corpus.DOCUMENTS, folder / LINES, settings, default_workers())
    return {name: getattr(report, name) for name in ("documents", "lines", "words", "unanalysed")}
