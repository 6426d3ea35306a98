"""Cells → slides: which cells of a notebook share a slide, which become speaker notes and which are left out."""

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import groupby

from course_lib.language.words import SOURCE
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell
from wcwidth import wcswidth

from course_authors.notebooks import BADGE_TAG, FOLDED_TAG, SETUP_TAG
from course_slides.prose import Block, blocks, columns, leading, short_list, translated_blocks

# The pattern of cells that check an answer; on a slide there is no answer.
CHECK = re.compile(r"\bexercises\.check\(|^from course_lib\.exercises import", re.MULTILINE)
# Columns of code and output, and lines of code with output, that a slide holds. tests/test_slides.py measures slides.
COLUMNS, LINES = 104, 22
# Lines of output on a slide without code; further ones are left to the notebook.
OUTPUT_LINES = 22
# The most columns of a paragraph below a cell, and on the first slide of a section.
PARAGRAPH, SECTION_PARAGRAPH = 190, 380
# Lists and tables with more columns are not added below a cell.
LONG_BLOCK = 300
# Paragraphs that are shown whole on a slide of their own: predictions and exercises.
WHOLE = re.compile(r"\*\*(Predict|予想|\d+\.)")
# The beginning of the goals, which get a slide of their own.
GOALS = ("**After this chapter you can**", "**この章の目標**")
SOURCES = ("**Sources.**", "**出典**")
CORE = re.compile(r" *(\(core\)|（必修）)$")
# What slides say beside the notebook's own words.
LEFT_OUT = {"en": "*{number} more lines in the notebook*", "ja": "*ほかに{number}行（ノートブックを参照）*"}
FIGURE = {"en": "Figure: {title}", "ja": "図：{title}"}
# Outputs that stand alone: a figure, a drawing, a table.
IMAGES = ("image/png", "text/html", "image/svg+xml", "text/markdown")


@dataclass
class Slide:
    """A slide: its cells from top to bottom, and the speaker notes in Markdown."""

    section: bool
    cells: list[NotebookNode] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # whether it shows a cell, so that prose that follows reads this cell
    shows: bool = False

    def write(self, text: str) -> None:
        """Add Markdown."""
        self.cells.append(new_markdown_cell(text))  # type: ignore[no-untyped-call]

    def marked(self) -> list[NotebookNode]:
        """Return the cells with the metadata that nbconvert's SlidesExporter reads, the notes last."""
        cells = [_typed(cell, "-") for cell in self.cells]
        cells[0].metadata["slideshow"]["slide_type"] = "slide" if self.section else "subslide"
        if self.notes:
            cells.append(_typed(new_markdown_cell("\n\n".join(self.notes)), "notes"))  # type: ignore[no-untyped-call]
        return cells


def slides(
    cells: Iterable[NotebookNode], language: str = SOURCE, english: Mapping[str, str] | None = None
) -> list[Slide]:
    """Return the slides of a notebook.

    Args:
        cells: the notebook's cells, with outputs.
        language: the notebook's language.
        english: id → source of the English cells, if the notebook is in another language.

    A section begins a horizontal slide; the slides below it are its cells: code with its output, or a figure without
    its code, each with the first sentences of the prose that follows, which reads the output. Whole paragraphs, and the
    code of figures, are in the notes. Set-up cells, badges, checks of exercises, folded cells and sources are left out.
    """
    deck = _Deck(language)
    for cell in cells:
        if {SETUP_TAG, BADGE_TAG, FOLDED_TAG} & set(cell.metadata.get("tags", [])):
            continue
        if cell.cell_type == "markdown":
            original = (english or {}).get(cell.id)
            deck.add_prose(translated_blocks(cell.source, original) if original else blocks(cell.source))
        elif cell.cell_type == "code" and not CHECK.search(cell.source):
            deck.add_code(cell)
    return deck.slides


class _Deck:
    """The slides so far."""

    def __init__(self, language: str) -> None:
        self._language = language
        self.slides: list[Slide] = []
        self._section = self._part = ""
        # the sentence that introduces the next cell
        self._introduction = ""

    def _new(self) -> Slide:
        """Begin a slide below the section's first one, with the titles of its section and part."""
        self.slides.append(Slide(False))
        self.slides[-1].write(f"#### {self._section}{f' · {self._part}' if self._part else ''}")
        return self.slides[-1]

    def add_prose(self, found: list[Block]) -> None:
        """Show the blocks of a Markdown cell."""
        for is_heading, group in groupby(found, lambda block: block.kind == "heading"):
            for heading in group if is_heading else ():
                self._head(heading.text)
            if not is_heading:
                self._show(list(group))

    def _show(self, found: list[Block]) -> None:
        """Show blocks below a heading. If some are shortened, the notes hold all of them."""
        text = "\n\n".join(block.text for block in found)
        if text.startswith(SOURCES):
            self.slides[-1].notes.append(text)
            return
        shown = []
        for block in found:
            if block.kind == "paragraph":
                shown.append(self._paragraph(block))
                continue
            shown.append(short_list(block.text) if block.kind == "list" else block.text)
            slide, is_long = self.slides[-1], columns(block.text) > LONG_BLOCK
            if is_long and (slide.shows or slide.section):
                slide = self._new()
            self._introduce(slide)
            slide.write(shown[-1])
            slide.shows |= is_long
        if "\n\n".join(shown) != text:
            self.slides[-1].notes.append(text)

    def _head(self, heading: str) -> None:
        if self.slides:
            self._introduce(self.slides[-1])
        hashes, _, title = heading.partition(" ")
        title = CORE.sub("", title).strip()
        if len(hashes) == 3:
            self._part = title
            self._new()
            return
        self._section, self._part = title, ""
        self.slides.append(Slide(True))
        self.slides[-1].write(f"{hashes} {title}")

    def _paragraph(self, block: Block) -> str:
        """Show a paragraph or its first sentences. Return what is shown now or will be with the next cell."""
        text = block.text
        if WHOLE.match(text):
            slide = self._new()
            slide.write(text)
            slide.shows = True
            return text
        if text.startswith(GOALS):
            self._new()
        self._introduce(self.slides[-1])
        limit = SECTION_PARAGRAPH if self.slides[-1].section else PARAGRAPH
        lead, self._introduction = leading(text, limit, block.introduces)
        if lead:
            self.slides[-1].write(lead)
        whole = len(lead) + len(self._introduction) >= len(text) - 1
        return text if whole else lead

    def _introduce(self, slide: Slide) -> None:
        """Write the sentence that introduces what comes next, if there is one."""
        if self._introduction:
            slide.write(self._introduction)
        self._introduction = ""

    def add_code(self, cell: NotebookNode) -> None:
        cell, number = _shown(cell)
        slide = self.slides[-1] if not self.slides[-1].shows and not self.slides[-1].section else self._new()
        self._introduce(slide)
        slide.shows = True
        if _is_figure(cell):
            _describe(cell, FIGURE[self._language].format(title=slide.cells[0].source.lstrip("# ")))
            slide.notes.append(f"```python\n{cell.source}\n```")
            slide.cells.append(_hidden_source(cell))
        elif _lines(cell.source) + _lines(_text(cell)) <= LINES:
            slide.cells.append(cell)
        else:
            slide.cells.append(_without_outputs(cell))
            slide = self._new()
            slide.shows = True
            slide.cells.append(_hidden_source(cell))
        if number:
            slide.write(LEFT_OUT[self._language].format(number=number))


def _shown(cell: NotebookNode) -> tuple[NotebookNode, int]:
    """Return a code cell as slides show it, and the number of lines of output that are left out.

    Neighboring streams are joined. Warnings and the empty outputs of progress bars are left out.
    """
    cell, left_out = deepcopy(cell), 0
    outputs: list[NotebookNode] = []
    for output in cell.outputs:
        if output.get("name") == "stderr" or ("data" in output and not output.data):
            continue
        if outputs and output.output_type == outputs[-1].output_type == "stream":
            outputs[-1].text += output.text
        else:
            outputs.append(output)
    cell.outputs = outputs
    for output in outputs:
        if output.output_type != "stream":
            continue
        lines = output.text.rstrip("\n").split("\n")
        too_many = (at for at in range(len(lines)) if _lines("\n".join(lines[: at + 1])) > OUTPUT_LINES)
        number = next(too_many, len(lines))
        if number < len(lines):
            left_out = len(lines) - number
        output.text = "\n".join(lines[: max(1, number)])
    return cell, left_out


def _is_figure(cell: NotebookNode) -> bool:
    return any(kind in output.get("data", {}) for output in cell.outputs for kind in IMAGES)


def _describe(cell: NotebookNode, text: str) -> None:
    """Give the figures of a cell an alternative text. Drawings have a text of their own."""
    for output in cell.outputs:
        if "image/png" in output.get("data", {}):
            output.metadata["image/png"] = {"alt": text} | output.metadata.get("image/png", {})


def _text(cell: NotebookNode) -> str:
    """Return the text that the outputs of a cell print."""
    return "\n".join(o.text if "text" in o else o.get("data", {}).get("text/plain", "") for o in cell.outputs)


def _lines(text: str) -> int:
    """Return how many lines of COLUMNS columns a text takes; Japanese characters take two columns."""
    return sum(max(1, -(-max(0, wcswidth(line)) // COLUMNS)) for line in text.split("\n")) if text else 0


def _without_outputs(cell: NotebookNode) -> NotebookNode:
    cell = deepcopy(cell)
    cell.outputs = []
    return cell


def _hidden_source(cell: NotebookNode) -> NotebookNode:
    """Return a cell of which only the outputs are exported."""
    cell = deepcopy(cell)
    cell.metadata["transient"] = {"remove_source": True}
    return cell


def _typed(cell: NotebookNode, kind: str) -> NotebookNode:
    cell = deepcopy(cell)
    cell.metadata["slideshow"] = {"slide_type": kind}
    return cell
