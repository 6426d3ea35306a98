"""Where the notebooks use the terms of docs/glossary.md, and which of these uses link to it.

A use is a form of a term (terms.yaml) in running prose: not in a heading, a table, code, an image, the sources or the
text of a link that leads elsewhere. Of two forms that overlap, the longer one counts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat
import yaml
from course_lib.workspace.chapters import CHAPTERS
from course_lib.paths import REPOSITORY

GLOSSARY = REPOSITORY / "docs/glossary.md"
# how a notebook links to the glossary
ADDRESS = "../docs/glossary.md#"
# number in the headings of a notebook's sections → its file
LABELS = ("1", "2", "3", "4a", "4b", "5", "6", "7")
NOTEBOOKS = dict(zip(LABELS, (path for chapter in CHAPTERS for path in chapter.paths), strict=True))
SECTION = re.compile(r"## (?:(\d[ab]?\.\d+) )?(.*)")
# What is no running prose, in this order: each match is blanked.
NO_PROSE = (
    re.compile(r"^```.*?^```", re.M | re.S),
    re.compile(r"^ {4}.*", re.M),
    re.compile(r"^#.*", re.M),
    re.compile(r"^\|.*", re.M),
    re.compile(r"`[^`]*`"),
    re.compile(r"^\*\*Sources\.\*\*.*?(?=^\*\*Next|\Z)", re.M | re.S),
)
LINK = re.compile(r"!?\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]*)\)")


@dataclass(frozen=True)
class Use:
    """A use of a term: in which notebook and section (None before the first), cell, characters, and what it links to."""

    term: str
    notebook: str
    section: str | None
    cell: str
    start: int
    end: int
    anchor: str | None


@dataclass(frozen=True)
class Entry:
    """An entry of the glossary: heading, Japanese, reading in kana, definition, and the line on its first use."""

    heading: str
    japanese: str
    reading: str
    definition: str
    first_used: str

    @property
    def term(self) -> str:
        return re.sub(r"<[^>]*>", "", self.heading)


def slug(heading: str) -> str:
    """The anchor of a heading on GitHub and on the site."""
    text = re.sub(r"<[^>]*>", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def jupyter_anchors(heading: str) -> set[str]:
    """The anchors of a heading in JupyterLab's preview: its text with hyphens for spaces, and those it spells out."""
    text = re.sub(r"<[^>]*>", "", heading)
    return {text.replace(" ", "-"), *re.findall(r'data-jupyter-id="([^"]*)"', heading)}


def entries(text: str) -> list[Entry]:
    """The entries of a glossary. Raises ValueError naming an entry of another form."""
    found = []
    for part in re.split(r"^### ", text, flags=re.M)[1:]:
        heading, _, body = re.split(r"^## ", part, flags=re.M)[0].partition("\n")
        match = re.fullmatch(
            r"\n\*\*(.+?)\*\*(?:（(.+?)）)?(?: · .+)?\n\n(.+)\n\n(First used in [^\n]+)\s*", body, re.S
        )
        if not match:
            raise ValueError(f"glossary entry {heading!r}: not Japanese (reading), definition and first use: {body!r}")
        japanese, reading, definition, first_used = match.groups()
        found.append(Entry(heading, japanese, reading or japanese, definition, first_used))
    return found


@cache
def forms() -> dict[str, list[tuple[str, frozenset[str]]]]:
    """Term → its forms, each with the notebooks in which it means this term."""
    listed = yaml.safe_load((Path(__file__).parent / "terms.yaml").read_text(encoding="utf8"))
    result: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for term, written in listed.items():
        result[term] = []
        for form in written or [term]:
            words, *scope = re.split(r" @", form)
            result[term].append((words, frozenset(scope or NOTEBOOKS)))
    return result


@cache
def _pattern(notebook: str) -> tuple[re.Pattern[str], list[str]]:
    """One pattern of all forms in a notebook, the longest first, and the term of each of its groups."""
    pairs = [(words, term) for term, each in forms().items() for words, scope in each if notebook in scope]
    pairs.sort(key=lambda pair: (pair[0][0].lower(), -len(pair[0])))
    # One group of alternatives per letter: several times as fast as a single list.
    letters = [
        (letter, "|".join(f"({_inflected(words)})" for words, _ in each))
        for letter, each in groupby(pairs, lambda pair: pair[0][0].lower())
    ]
    alternatives = "|".join(f"(?=[{letter}{letter.upper()}])(?:{each})" for letter, each in letters)
    return re.compile(rf"(?<![\w-])(?<!\w/)(?:{alternatives})(?![\w]|-\w|\+)"), [term for _, term in pairs]


def _inflected(words: str) -> str:
    """A pattern of a form: any white space between its words, a capital at its beginning, its plural."""
    first = f"[{words[0]}{words[0].upper()}]" if words.islower() else re.escape(words[0])
    stem, ending = (words[1:-1], "(?:y|ies)") if re.search(r"[^aeiou]y$", words) else (words[1:], "(?:s|es)?")
    return first + re.escape(stem).replace(r"\ ", r"\s+") + ending


def uses(notebook: str, document: nbformat.NotebookNode) -> Iterator[Use]:
    """All uses of terms in a notebook, in reading order."""
    pattern, terms = _pattern(notebook)
    section = None
    for cell in document.cells:
        if cell.cell_type != "markdown":
            continue
        for start, part in _sections(cell.source):
            if heading := SECTION.match(part):
                section = heading[1] or f"{notebook}, {heading[2]}"
            prose, links = _prose(part)
            for match in pattern.finditer(prose):
                anchor = next((a for low, high, a in links if low <= match.start() and match.end() <= high), None)
                term = terms[(match.lastindex or 0) - 1]
                yield Use(term, notebook, section, cell.id, start + match.start(), start + match.end(), anchor)


def _sections(source: str) -> Iterator[tuple[int, str]]:
    """The parts of a cell, each from a heading of a section to the next, with their places."""
    places = sorted({0, *(match.start() for match in re.finditer(r"^## ", source, re.M)), len(source)})
    for start, end in zip(places, places[1:], strict=False):
        yield start, source[start:end]


def _prose(source: str) -> tuple[str, list[tuple[int, int, str]]]:
    """A text of the same length with only its running prose, and the places and anchors of its links to the glossary."""
    for pattern in NO_PROSE:
        source = pattern.sub(lambda match: re.sub(r"[^\n]", "\0", match[0]), source)
    links = []
    characters = list(source)
    for match in LINK.finditer(source):
        ours = match[2].startswith(ADDRESS)
        if ours:
            links.append((match.start(1), match.end(1), match[2].removeprefix(ADDRESS)))
        for at in range(match.start(), match.end()):
            if not (ours and match.start(1) <= at < match.end(1)):
                characters[at] = "\n" if source[at] == "\n" else "\0"
    return "".join(characters), links


def first_used(term_uses: list[Use]) -> str:
    """The glossary's line on a term: the section of its first use, and after an introduction the first section."""
    first = term_uses[0]
    address = f"../notebooks/{NOTEBOOKS[first.notebook].name}"
    if first.section:
        return f"First used in [{first.section}]({address})."
    later = next((use.section for use in term_uses if use.section and use.notebook == first.notebook), None)
    return f"First used in the introduction of [{first.notebook}]({address})" + (
        f", then in {later}." if later else "."
    )


def read_all() -> dict[str, Any]:
    """All notebooks, by the number of their sections."""
    return {label: nbformat.read(path, as_version=4) for label, path in NOTEBOOKS.items()}
