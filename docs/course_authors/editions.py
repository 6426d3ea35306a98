"""The course in another language: its notebooks and pages with the texts of the catalogues.

A notebook's code is the English one, with its literals and comments for people translated; its set-up cell sets the
language, so that the library says the rest.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from course_lib.files import atomic_write
from course_lib.language.words import SOURCE
from course_lib.notebooks.drawing import FOLDER as DRAWINGS
from course_lib.paths import NOTEBOOKS, REPOSITORY

from course_authors import catalogs, cells, pages
from course_authors.notebooks import ABSOLUTE, BADGE_TAG, SETUP_TAG, badge, setup

# The target of a Markdown link or of an HTML image, and its anchor.
LINK = re.compile(r"""(\]\(|(?:src|href)=")([^)\s"#]*)(#[^)\s"]*)?""")
Texts = dict[tuple[str, str], str]


def build(language: str, folder: Path | None = None, only: tuple[str, ...] = ("",)) -> list[Path]:
    """Write the notebooks and pages in a language and return the paths of the notebooks.

    A text without a translation stays English. A code cell keeps the outputs that a notebook at the same path, or else
    the course's notebook in this language, has for the same code, apart from strings; otherwise, it has none.

    Args:
        language: code of the language, such as "ja".
        folder: a folder that gets the same tree as the repository; None means README.ja.md, docs/ja and notebooks/ja.
        only: beginnings of the names of the notebooks to write; other notebooks stay as they are.

    Raises UsageError if the language is English or unknown, and CourseError if its catalogue cannot be read.
    """
    for target, content in files(language, folder):
        if target.suffix == ".ipynb" and not target.name.startswith(only):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as file:
            file.write(content)
    links = Links(language, folder, {})
    sources = [path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if path.name.startswith(only)]
    return [links.target(source) for source in sources]


def files(language: str, folder: Path | None = None) -> Iterator[tuple[Path, bytes]]:
    """Yield the paths and contents of the pages and notebooks in a language. Arguments and errors as in `build`."""
    texts, page_texts = (catalogs.translations(language, domain) for domain in (catalogs.NOTEBOOKS, catalogs.PAGES))
    links = Links(language, folder, page_texts)
    for page in pages.pages():
        text = pages.translated(page.read_text(encoding="utf8"), page_texts)
        yield links.target(page), links.moved(text, page).encode()
    for source in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = translated(source, texts, links)
        for before in (NOTEBOOKS / language / source.name, links.target(source)):
            _keep_outputs(notebook, before)
        yield links.target(source), nbformat.writes(notebook).encode() + b"\n"  # type: ignore[no-untyped-call]


def behind(language: str) -> list[Path]:
    """Return the stored files of an edition that are not those of today's English: pages, notebooks and drawings.

    Such a file stays as it is, and no test compares it, until its texts are translated and `build` writes it again.
    """
    written = [path for path, content in files(language) if not path.exists() or path.read_bytes() != content]
    drawn = {path: DRAWINGS / language / path.name for path in sorted((DRAWINGS / SOURCE).glob("*.svg"))}
    return [*written, *(path for source, path in drawn.items() if _labels(path) != _labels(source))]


def _labels(drawing: Path) -> int:
    return drawing.read_text(encoding="utf8").count("<text") if drawing.exists() else -1


def stored(language: str, folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the stored pages and notebooks of an edition, as files of `folder`, a tree like the repository.

    Their relative links lead to files of this tree, and to the repository where it has none.
    """
    sources = {pages.edition(path, language): path for path in (*pages.pages(), *sorted(NOTEBOOKS.glob("*.ipynb")))}
    tree = {path: folder / source.relative_to(REPOSITORY) for path, source in sources.items() if path.exists()}

    def moved(text: str, path: Path) -> str:
        """Return a text of a file with the links that it has in the tree."""

        def move(link: re.Match[str]) -> str:
            target = Path(os.path.normpath(path.parent / link[2]))
            if not link[2] or re.match(r"[a-z]+:|/", link[2]) or not target.exists():
                return link[0]
            target = Path(os.path.relpath(tree.get(target, target), tree[path].parent))
            return f"{link[1]}{target.as_posix()}{'/' * link[2].endswith('/')}{link[3] or ''}"

        return LINK.sub(move, text)

    for path, target in tree.items():
        if path.suffix == ".md":
            yield target, moved(path.read_text(encoding="utf8"), path).encode()
            continue
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        for cell in notebook.cells:
            if cell.cell_type == "markdown" and BADGE_TAG not in cell.metadata.get("tags", []):
                cell.source = moved(cell.source, path)
        yield target, nbformat.writes(notebook).encode() + b"\n"  # type: ignore[no-untyped-call]


class Links:
    """Where the files of an edition are, and the links between them.

    Args:
        language: code of the language.
        folder: as in `build`.
        texts: translations of the pages, for the anchors of headings.
    """

    def __init__(self, language: str, folder: Path | None, texts: Texts) -> None:
        self.language = language
        self._folder = folder
        self._texts = texts
        images = NOTEBOOKS / language / "images"
        # the English files that have another form in the edition
        self._sources = {*pages.pages(), *NOTEBOOKS.glob("*.ipynb")}
        self._sources |= {NOTEBOOKS / "images" / path.name for path in images.glob("*.png")}

    def target(self, source: Path) -> Path:
        """Return the path that a file of the repository has in the edition."""
        if self._folder and source.suffix != ".png":
            return self._folder / source.relative_to(REPOSITORY)
        return pages.edition(source, self.language)

    def moved(self, text: str, source: Path) -> str:
        """Return a text of the file `source` with the links that it has in the edition."""
        return LINK.sub(lambda link: link[1] + self._moved(link[2], link[3] or "", source), text)

    def _moved(self, link: str, anchor: str, source: Path) -> str:
        absolute = link.startswith(ABSOLUTE)
        start, name = (REPOSITORY, link.removeprefix(ABSOLUTE)) if absolute else (source.parent, link)
        path = Path(os.path.normpath(start / name)) if link else source
        if re.match(r"[a-z]+:|/", name) or not path.exists():
            return link + anchor
        if path.suffix == ".md" and path in self._sources and path != REPOSITORY / pages.GLOSSARY:
            anchor = self._anchor(path, anchor)
        if absolute:
            named = pages.edition(path, self.language) if path in self._sources else path
            return f"{ABSOLUTE}{named.relative_to(REPOSITORY).as_posix()}{anchor}"
        # A link of a file to itself is the switch between the languages.
        target = self.target(path) if path in self._sources and (path != source or anchor) else path
        moved = Path(os.path.relpath(target, self.target(source).parent)).as_posix()
        return (moved + "/" * link.endswith("/") if link else "") + anchor

    def _anchor(self, page: Path, anchor: str) -> str:
        """Return the anchor of the heading whose English text has a given anchor."""
        if not anchor:
            return ""
        text = page.read_text(encoding="utf8")
        english, translations = pages.anchors(text), pages.anchors(pages.translated(text, self._texts))
        by_english = dict(zip(english, translations, strict=True))
        name = anchor.removeprefix("#")
        return f"#{by_english.get(name, name)}"


def translated(source: Path, texts: Texts, links: Links) -> nbformat.NotebookNode:
    """Return a notebook with the translations `texts`, without outputs."""
    notebook: nbformat.NotebookNode = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        key, tags = f"{source.stem} {cell.id}", cell.metadata.get("tags", [])
        if cell.cell_type == "code":
            of_cell = {text: translation for (its_key, text), translation in texts.items() if its_key == key}
            cell.source = setup(links.language) if SETUP_TAG in tags else cells.translated(cell.source, of_cell)
            cell.outputs, cell.execution_count = [], None
        elif BADGE_TAG in tags:
            cell.source = badge(f"{links.language}/{source.name}")
        else:
            cell.source = links.moved(texts.get((key, cell.source), cell.source), source)
    return notebook


def _keep_outputs(notebook: nbformat.NotebookNode, before: Path) -> None:
    """Give code cells the outputs that a former notebook, if it exists, has for the same code."""
    if not before.exists():
        return
    former = nbformat.read(before, as_version=4)  # type: ignore[no-untyped-call]
    run = {cell.id: cell for cell in former.cells if cell.cell_type == "code"}
    for cell in notebook.cells:
        old = run.get(cell.id)
        is_setup = SETUP_TAG in cell.metadata.get("tags", [])
        if old is not None and (is_setup or cells.same_code(old.source, cell.source)):
            cell.outputs, cell.execution_count = old.outputs, old.execution_count
