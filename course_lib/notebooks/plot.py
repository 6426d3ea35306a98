"""The common style: the palette of figures, tables and drawings; the size and the Japanese font of figures.

The figures are in each chapter's figures.py, its tables and drawings in diagrams.py.
"""

from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple


class Color(NamedTuple):
    """A hue of the palette: one shade for figures, a lighter and a darker one for tables and drawings."""

    plot: str  # of a line, bar or point in a figure
    fill: str  # of a box in a table or drawing
    line: str  # of the box's border, and of lines and text; its contrast on the fill and on the card is at least 4.5


# For tables and drawings: the background (card), text, and lines and less important text.
CARD, INK, MUTED = "#ffffff", "#1f2933", "#52606d"
BLUE = Color("#3b6ea5", "#dbe8f6", "#2b5a8c")
ORANGE = Color("#d9822b", "#fbe3c8", "#8f4a08")
GREEN = Color("#5a9e6f", "#dcefe2", "#2a6540")
RED = Color("#b0485a", "#f6dbe0", "#963044")
PURPLE = Color("#7a6aa8", "#e6e1f3", "#5b4a8f")
GREY = Color("#8a8a8a", "#eceff2", MUTED)
# A box without a hue.
PLAIN = Color(MUTED, CARD, MUTED)
# For the lines, bars or points of a figure that has several.
PLOT_COLORS = tuple(color.plot for color in (BLUE, ORANGE, GREEN, RED, PURPLE, GREY))


def subplots(
    columns: int = 1, height: float = 3.4, width: float = 8.0, rows: int = 1, **options: Any
) -> tuple[Any, Any]:
    """Create a figure and `rows` rows of `columns` axes in the course style; sizes are in inches.

    matplotlib is imported inside the function because the import takes a second.
    """
    import matplotlib.pyplot as plt

    # The import registers the Japanese font.
    import matplotlib_fontja  # noqa: F401

    figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", **options)
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    # A notebook displays the returned figure. If the figure stayed open, it would be displayed twice.
    plt.close(figure)
    return figure, axes


def rows_without_overlap(spans: Iterable[tuple[int, int]]) -> list[int]:
    """Return a row number for each span (start, end): the first row where the span overlaps no earlier one."""
    # (row, start, end) of the spans so far.
    placed: list[tuple[int, int, int]] = []
    for start, end in spans:
        overlapped = {row for row, other_start, other_end in placed if other_start < end and start < other_end}
        row = next(row for row in count() if row not in overlapped)
        placed.append((row, start, end))
    return [row for row, _, _ in placed]
