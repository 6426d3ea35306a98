"""A canvas for the drawings that show a learner's own values: boxes, arrows and labels on a light card, as SVG."""

import unicodedata
from collections.abc import Iterable
from html import escape
from itertools import count
from typing import NamedTuple

import drawsvg

from course_lib.language import words
from course_lib.notebooks.drawing import Drawing

# Sizes in pixels.
TITLE, TEXT, SMALL, SMALLEST = 16, 14, 12, 7
LINE_HEIGHT = 17
# Latin and Japanese fonts in the order in which a viewer's machine may have them.
FONTS = "Arial, 'Liberation Sans', 'Noto Sans JP', 'Noto Sans CJK JP', 'Hiragino Sans', 'Yu Gothic', Meiryo, sans-serif"
CARD, INK, MUTED = "#ffffff", "#1f2933", "#52606d"
Point = tuple[float, float]


class Color(NamedTuple):
    """The fill of a box, and the darker color of its border and of text on the fill or on the card."""

    fill: str
    line: str


# The hues are those of plot.py; each line color has a contrast of at least 4.5 on its fill and on the card.
PLAIN = Color("#ffffff", "#52606d")
GREY = Color("#eceff2", "#52606d")
BLUE = Color("#dbe8f6", "#2b5a8c")
ORANGE = Color("#fbe3c8", "#8f4a08")
GREEN = Color("#dcefe2", "#2a6540")
RED = Color("#f6dbe0", "#963044")
PURPLE = Color("#e6e1f3", "#5b4a8f")
HUES = (BLUE, ORANGE, GREEN, RED, PURPLE)


class Box(NamedTuple):
    """A rectangle; `left`, `right`, `top` and `bottom` are the middles of its sides, where arrows begin and end."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> Point:
        """The middle of the left side."""
        return self.x, self.y + self.height / 2

    @property
    def right(self) -> Point:
        """The middle of the right side."""
        return self.x + self.width, self.y + self.height / 2

    @property
    def top(self) -> Point:
        """The middle of the upper side."""
        return self.x + self.width / 2, self.y

    @property
    def bottom(self) -> Point:
        """The middle of the lower side."""
        return self.x + self.width / 2, self.y + self.height


class Canvas:
    """A card to draw on. x grows to the right and y downwards; all sizes are in pixels."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._content: list[drawsvg.DrawingElement] = []
        self._head = drawsvg.Marker(-0.9, -0.5, 0.1, 0.5, scale=6, orient="auto")
        self._head.append(drawsvg.Lines(-0.9, -0.45, -0.9, 0.45, 0.1, 0, fill=MUTED, close=True))

    def text(
        self, x: float, y: float, text: str, size: int = TEXT, color: str = INK, anchor: str = "middle",
        bold: bool = False,
    ) -> None:  # fmt: skip
        """Write one line whose vertical middle is at `y`; `anchor` is start, middle or end."""
        left, right = x, self.width - x
        room = {"start": right, "middle": 2 * min(left, right), "end": left}[anchor]
        size = _fitting(text, size, bold, room)
        weight = {"font_weight": "bold"} if bold else {}
        # 0.35 of the size lies between the base line and the middle of a letter.
        base = round(y + 0.35 * size, 1)
        self._content.append(drawsvg.Text(text, size, round(x, 1), base, text_anchor=anchor, fill=color, **weight))

    def box(
        self, x: float, y: float, width: float, height: float, *lines: str, color: Color = PLAIN, size: int = TEXT,
        bold: bool = False,
    ) -> Box:  # fmt: skip
        """Draw a box with centered lines of text: the first in `size`, the others in SMALL."""
        shape = Box(x, y, width, height)
        self._content.append(drawsvg.Rectangle(*(round(n, 1) for n in shape), rx=4, fill=color.fill, stroke=color.line))
        first = y + height / 2 - LINE_HEIGHT * (len(lines) - 1) / 2
        for number, line in enumerate(lines):
            strong = bold and not number
            own = _fitting(line, SMALL if number else size, strong, width - 2)
            self.text(x + width / 2, first + number * LINE_HEIGHT, line, own, bold=strong)
        return shape

    def line(self, *points: Point, head: bool = False, color: str = MUTED, width: float = 1.5) -> None:
        """Draw a line through two or more points, with an arrow head at the last one if `head` is true."""
        end = {"marker_end": self._head} if head else {}
        flat = [round(number, 1) for point in points for number in point]
        self._content.append(drawsvg.Lines(*flat, fill="none", stroke=color, stroke_width=width, **end))

    def label(self, x: float, y: float, text: str, color: str = INK, bold: bool = False) -> None:
        """Write a small text that covers what lies behind it."""
        width = text_width(text, SMALL, bold)
        self._content.append(
            drawsvg.Rectangle(round(x - width / 2, 1), round(y - SMALL / 2, 1), round(width, 1), SMALL, fill=CARD)
        )
        self.text(x, y, text, SMALL, color, bold=bold)

    def arrow(self, *points: Point) -> None:
        """Draw an arrow through two or more points."""
        self.line(*points, head=True)

    def finish(self, title: str, description: str) -> Drawing:
        """Return the drawing with its title at the top left, and a description for readers who do not see it."""
        self.text(16, 20, title, TITLE, anchor="start", bold=True)
        out = drawsvg.Drawing(self.width, self.height, role="img", font_family=FONTS)
        out.append(drawsvg.Title(title))
        out.append(drawsvg.Raw(f"<desc>{escape(description, quote=False)}</desc>"))
        out.append(drawsvg.Rectangle(0.5, 0.5, self.width - 1, self.height - 1, rx=8, fill=CARD, stroke="#cbd2d9"))
        out.extend(self._content)
        return Drawing(out.as_svg(header=""))


def text_width(text: str, size: int = TEXT, bold: bool = False) -> float:
    """Estimate the width of a line [pixels] from the widths of DejaVu Sans, which is wider than Arial."""
    return size * sum(map(_ems, text)) * (1.1 if bold else 1)


def _fitting(text: str, size: int, bold: bool, room: float) -> int:
    """Return `size`, or for a translated line a smaller size at which it is at most `room` pixels wide."""
    if words.language() == words.SOURCE:
        return size
    return next((each for each in range(size, SMALLEST - 1, -1) if text_width(text, each, bold) <= room), size)


def with_minus(number: str) -> str:
    """Return a formatted number with the minus sign − instead of a hyphen."""
    return number.replace("-", "−")


def _ems(character: str) -> float:
    """Return the width of a character in units of the font size."""
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character in " .,:;!|'()[]{}ijltfrI/":
        return 0.4
    return 0.98 if character in "mMW@%—" else 0.69 if character.isupper() else 0.63


def rows_without_overlap(spans: Iterable[tuple[int, int]]) -> list[int]:
    """Return a row number for each span (start, end): the first row where the span overlaps no earlier one."""
    placed: list[tuple[int, int, int]] = []
    for start, end in spans:
        taken = {row for row, first, last in placed if first < end and start < last}
        placed.append((next(row for row in count() if row not in taken), start, end))
    return [row for row, _, _ in placed]
