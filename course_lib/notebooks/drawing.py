"""Drawings: SVG files, one per language, in the folder `drawings`, and how a notebook shows them."""

import re
from base64 import b64encode
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from typing import Any

from course_lib.errors import UsageError
from course_lib.language import words
from course_lib.language.words import tr

FOLDER = Path(__file__).with_name("drawings")
# How overview() shows where the reader is: the color of the notebook's box, and the text "You are here".
HERE = '<style>[id="{notebook}"] rect {{ fill: #fbe3c8; stroke: #8f4a08 }} #here {{ display: inline }}</style>\n'


@dataclass(frozen=True)
class Drawing:
    """A finished drawing, displayed as an HTML image whose source contains the SVG.

    JupyterLab shows image/svg+xml only in a trusted notebook, which a fresh clone is not
    (https://github.com/jupyterlab/jupyterlab/issues/9650), and GitHub removes inline SVG
    (https://github.com/xflr6/graphviz/issues/182).
    """

    svg: str

    @property
    def title(self) -> str:
        """What the drawing is: the SVG's title."""
        return self._part("<title>(.*?)</title>")

    @property
    def alt(self) -> str:
        """The text for readers who do not see the drawing: the SVG's title and description."""
        return tr("{title}. {description}", title=self.title, description=self._part("<desc>(.*?)</desc>"))

    @property
    def html(self) -> str:
        """An HTML image that contains the SVG."""
        width, source = self._part(r' width="(\d+)"'), b64encode(self.svg.encode()).decode()
        return f'<img alt="{escape(self.alt)}" width="{width}" src="data:image/svg+xml;base64,{source}">'

    def _part(self, pattern: str) -> str:
        found = re.search(pattern, self.svg, re.DOTALL)
        return unescape(found[1]) if found else ""

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": self.alt}


def drawing(name: str) -> Drawing:
    """Return a drawing by its file name without the ending, in the reader's language or else in English."""
    for language in (words.language(), words.SOURCE):
        path = FOLDER / language / f"{name}.svg"
        if path.is_file():
            return Drawing(path.read_text(encoding="utf8").rstrip("\n"))
    names = sorted(path.stem for path in (FOLDER / words.SOURCE).glob("*.svg"))
    raise UsageError(tr("drawing {name!r} does not exist; allowed: {names}", name=name, names=", ".join(names)))


def overview(notebook: str | None = None) -> Drawing:
    """Return the drawing of the ten notebooks and what each hands to the next.

    "You are here" is at `notebook`, a file name without its ending such as "03_tokenizers"; None: at none.
    """
    svg = drawing("overview").svg
    if notebook is None:
        return Drawing(svg)
    box = re.search(rf'<g id="{re.escape(notebook)}">\n<rect x="(\d+)" y="(\d+)"', svg)
    if box is None:
        raise UsageError(tr("notebook {notebook!r} does not exist", notebook=notebook))
    svg = svg.replace('id="here"', f'id="here" x="{box[1]}" y="{int(box[2]) - 7}"')
    return Drawing(svg.replace("<title>", HERE.format(notebook=notebook) + "<title>", 1))
