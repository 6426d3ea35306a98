"""Products for chapter 2: the documents from chapter 1 as segmented lines."""

from pathlib import Path
from typing import Any

from course_lib.corpus import products as corpus
from course_lib.japanese.config import SEGMENT_SECTION, SegmentConfig
from course_lib.parallel import default_workers
from course_lib.workspace.products import Product

# File name inside each product.
LINES = "lines.txt"


def _segment(folder: Path, inputs: list[Path], settings: SegmentConfig) -> dict[str, Any]:
    from course_lib.japanese.pipeline import segment_file

    report = segment_file(inputs[0] / corpus.DOCUMENTS, folder / LINES, settings, default_workers())
    return {name: getattr(report, name) for name in ("documents", "lines", "words", "unanalysed")}


def _segmented(name: str, documents: Product) -> Product:
    return Product(name, build=_segment, settings=SEGMENT_SECTION.read, inputs=(documents,), code=("japanese",))


# The documents of Wikipedia, of the web text and of the small world as segmented lines.
WIKIPEDIA = _segmented("japanese/wikipedia", corpus.WIKIPEDIA)
WEBTEXT = _segmented("japanese/webtext", corpus.WEBTEXT)
WORLD = _segmented("japanese/world", corpus.WORLD)
# The given documents (corpus/products.py), as segmented lines.
GIVEN = _segmented("japanese/documents", corpus.GIVEN)


def texts() -> tuple[Product, ...]:
    """Return the segmented texts that the profile's GPT-2 learns."""
    if corpus.has_given():
        return (GIVEN,)
    return (WORLD,) if corpus.has_world() else (WIKIPEDIA, WEBTEXT)


def products() -> list[Product]:
    """Return the chapter's products for the current profile, in build order."""
    return list(dict.fromkeys([WIKIPEDIA, WEBTEXT, *texts()]))
