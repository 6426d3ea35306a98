"""The notebooks in another language: the English ones with the Markdown cells of its catalogue.

The code cells are the same to the byte. When they run with COURSE_LANG, cell_words.py translates what they show.
"""

import os
import re
from pathlib import Path

import nbformat

from course_lib import catalogs, words
from course_lib.files import atomic_write
from course_lib.notebooks import BADGE_TAG, badge
from course_lib.paths import NOTEBOOKS

# The target of a Markdown link or of an HTML image, without its anchor.
LINK = re.compile(r"""(\]\(|(?:src|href)=")([^)\s"#]+)""")


def build(language: str, folder: Path | None = None) -> list[Path]:
    """Write the notebooks in a language and return their paths.

    A cell without a translation, or with a fuzzy one, stays English. A code cell keeps the outputs that an earlier
    notebook at the same path has for the same code; otherwise, it has none.

    Args:
        language: code of the language, such as "ja".
        folder: where the notebooks go; None means notebooks/<language>.

    Raises UsageError if the language is English or unknown, and CourseError if its catalogue cannot be read or there is
    no checkout.
    """
    catalogs.require_checkout()
    folder = folder or NOTEBOOKS / language
    catalog = catalogs.read(language, catalogs.NOTEBOOKS, own_folder())
    texts = {str(message.context): str(message.string) for message in catalog if message.string and not message.fuzzy}
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(source, folder / source.name, texts) for source in sorted(NOTEBOOKS.glob("*.ipynb"))]


def own_folder() -> Path | None:
    """Return the folder with catalogues that COURSE_LOCALE names, or None for the course's own."""
    return Path(value) if (value := os.environ.get(words.FOLDER)) else None


def translated(source: Path, target: Path, texts: dict[str, str]) -> nbformat.NotebookNode:
    """Return a notebook with translated Markdown cells, without outputs.

    `texts` maps "<notebook> <cell id>" to a translation. Relative links lead to the same files from `target`, except
    those to other notebooks, which each language has.
    """
    notebook: nbformat.NotebookNode = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        elif BADGE_TAG in cell.metadata.get("tags", []):
            cell.source = badge(f"{target.parent.name}/{target.name}")
        else:
            text = texts.get(f"{source.stem} {cell.id}", cell.source)
            cell.source = LINK.sub(lambda link: link[1] + _moved(link[2], source.parent, target.parent), text)
    return notebook


def _write(source: Path, target: Path, texts: dict[str, str]) -> Path:
    notebook = translated(source, target, texts)
    if target.exists():
        before = nbformat.read(target, as_version=4)  # type: ignore[no-untyped-call]
        run = {cell.id: cell for cell in before.cells if cell.cell_type == "code"}
        for cell in notebook.cells:
            old = run.get(cell.id)
            if old is not None and old.source == cell.source:
                cell.outputs, cell.execution_count = old.outputs, old.execution_count
    with atomic_write(target) as file:
        file.write(nbformat.writes(notebook).encode() + b"\n")  # type: ignore[no-untyped-call]
    return target


def _moved(link: str, source: Path, target: Path) -> str:
    """Return a relative link of a notebook in folder `source` for a notebook in folder `target`."""
    path = source / link
    if re.match(r"[a-z]+:|/", link) or (path.suffix == ".ipynb" and path.parent == source) or not path.exists():
        return link
    return Path(os.path.relpath(path, target)).as_posix()
