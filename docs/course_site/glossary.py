"""The terms of docs/glossary.md in the index and in the search: in English, in Japanese and by their reading."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from course_lib.language.words import SOURCE
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from course_site import page
from course_site.search import JAPANESE

GLOSSARY = "docs/glossary"
# **活性値**（かっせいち） · …; a term in katakana is its reading, too.
TERM = re.compile(r"(?P<term>.*?)(?:（(?P<reading>[ぁ-ゖァ-ヺー・]+)）)?(?: · .*)?")
# The first kana of each row of the syllabary → the row.
ROWS = dict(zip("あかさたなはまやらわ", "アカサタナハマヤラワ", strict=True))
SMALL = str.maketrans("ぁぃぅぇぉっゃゅょゎ", "あいうえおつやゆよわ")
VOWELS = dict(zip("AIUEO", "あいうえお", strict=True))
TITLE = "五十音順の索引"


class Entry(NamedTuple):
    """A term of the Japanese glossary: its position in the order of the syllabary, itself, and its id on the page."""

    order: str
    term: str
    target: str

    @property
    def row(self) -> str:
        """The row of the syllabary, such as カ行: that of the last of ROWS that is not after the first kana."""
        return next(f"{row}行" for kana, row in reversed(ROWS.items()) if kana <= self.order)


class Terms(SphinxTransform):
    """Lists each term, a heading of level 3, under its title and under the Japanese words of its first paragraph.

    The Japanese page begins with an index in the order of the syllabary.
    """

    # Before Sphinx's collection of the index, at 850.
    default_priority = 840

    def apply(self, **_: Any) -> None:
        """Add the entries, and remove the anchors for JupyterLab from the headings."""
        if self.env.docname != GLOSSARY:
            return
        entries = []
        for section, title, first in self._terms():
            for raw in list(title.findall(nodes.raw)):
                title.remove(raw)
            target = section["ids"][0]
            found = TERM.fullmatch(first)
            if self.config.language == SOURCE or not found or not found["term"]:
                section.insert(1, page.index([title.astext(), *JAPANESE.findall(first)], target))
                continue
            entries.append(Entry(order(found["reading"] or found["term"]), found["term"], target))
            if title.astext() != found["term"]:
                section.insert(1, page.index([title.astext()], target))
        if self.config.language != SOURCE:
            home = next(self.document.findall(nodes.section))
            home.insert(home.first_child_matching_class(nodes.section), _index(sorted(entries)))

    def _terms(self) -> Iterator[tuple[nodes.section, nodes.title, str]]:
        """Yield the section of each term, its title, and its first paragraph."""
        for title in list(self.document.findall(nodes.title)):
            section = title.parent
            if isinstance(section.parent, nodes.section) and isinstance(section.parent.parent, nodes.section):
                yield section, title, next(section.findall(nodes.paragraph), nodes.paragraph()).astext()


def order(reading: str) -> str:
    """Return a key that sorts readings in the order of the syllabary, as dictionaries do (JIS X 4061, simplified).

    Katakana count as hiragana, small and voiced kana as plain ones, and a long vowel as the vowel before it.
    """
    plain = ""
    for character in unicodedata.normalize("NFKD", reading):
        if character == "ー" and plain:
            plain += VOWELS[unicodedata.name(plain[-1])[-1]]
        elif "ァ" <= character <= "ヶ":
            plain += chr(ord(character) - ord("ァ") + ord("ぁ")).translate(SMALL)
        elif "ぁ" <= character <= "ゖ":
            plain += character.translate(SMALL)
    return plain


def _index(entries: list[Entry]) -> nodes.section:
    """Return a section with a line for each row of the syllabary."""
    section = nodes.section("", nodes.title(TITLE, TITLE), ids=["japanese-index"], names=[TITLE])
    for row, group in groupby(entries, lambda entry: entry.row):
        line = page.paragraph(nodes.strong(row, row))
        for entry in group:
            # The general index has no readings to sort by: it keeps this order.
            line += page.index([entry.term], entry.target, row)
            line += [nodes.Text("　"), page.link(f"#{entry.target}", nodes.Text(entry.term))]
        section += line
    return section


def setup(app: Sphinx) -> None:
    """Register the transform."""
    app.add_transform(Terms)
