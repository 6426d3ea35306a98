"""Products of chapter 2: the documents of chapter 1 as segmented lines."""

from functools import partial
from pathlib import Path
from typing import Any

from course_lib import config
from course_lib.corpus.products import DOCUMENTS
from course_lib.japanese.config import SegmentConfig
from course_lib.parallel import default_workers
from course_lib.product import Product

# The file name inside each product.
LINES = "lines.txt"


def products() -> list[Product]:
    """Return the products japanese/wikipedia and japanese/webtext, one for each source of chapter 1."""
    settings = config.section("japanese.segment", SegmentConfig)
    names = ("wikipedia", "webtext")
    return [
        Product(f"japanese/{n}", partial(_segment, settings), settings, (f"corpus/{n}",), ("japanese",)) for n in names
    ]


def _segment(settings: SegmentConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.japanese.pipeline import segment_file

    report = segment_file(inputs[0] / DOCUMENTS, folder / LINES, settings, default_workers())
    return {name: getattr(report, name) for name in ("documents", "lines", "words", "unanalysed")}
