"""The common style for all figures: size, the Japanese font, and the colors from which each figure chooses. The figures are in each chapter's figures.py."""

from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple

# Colors of the lines, bars and points of a figure.
COLORS = ("#3b6ea5", "#d9822b", "#5a9e6f", "#b0485a", "#7a6aa8", "#8a8a8a")
# Of a comparison: gray for what was before a change, blue for what came of it.
BEFORE, AFTER = COLORS[5], COLORS[0]


class Color(NamedTuple):
    """The fill of a box, and the darker color of its border and of text on the fill or on the card."""

    fill: str
    line: str


# For tables and drawings: the background (card), text, and lines and less important text.
CARD, INK, MUTED = "#ffffff", "#1f2933", "#52606d"
# In the hues of COLORS; each line color has a contrast of at least 4.5 on its fill and on the card.
PLAIN = Color(CARD, MUTED)
GREY = Color("#eceff2", MUTED)
BLUE = Color("#dbe8f6", "#2b5a8c")
ORANGE = Color("#fbe3c8", "#8f4a08")
GREEN = Color("#dcefe2", "#2a6540")
RED = Color("#f6dbe0", "#963044")
PURPLE = Color("#e6e1f3", "#5b4a8f")


def subplots(columns: int = 1, height: float = 3.4, width: float = 8.0, **options: Any) -> tuple[Any, Any]:
    """Create a figure and a row of `columns` axes in the course style; sizes are in inches.

    matplotlib is imported inside the function because the import takes a second.
    """
    import matplotlib.pyplot as plt

    # The import registers the Japanese font.
    import matplotlib_fontja  # noqa: F401

    figure, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained", **options)
    for axis in axes if columns > 1 else [axes]:
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
