"""Figures for chapter 3."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.figures import AFTER, BEFORE, COLOURS, subplots
from course_lib.subword.compare import Measures


def comparison(rows: Sequence[Measures]) -> Any:
    """Draw bar charts of characters per token and of the share of tokens that cross a word boundary [%]."""
    figure, (left, right) = subplots(2)
    names = [row.name for row in rows]
    bars = left.barh(names, [row.characters_per_token for row in rows], color=COLOURS[: len(rows)])
    left.bar_label(bars, fmt="%.2f", padding=3)
    left.set(xlabel="characters per token")
    bars = right.barh(names, [100 * row.crossing for row in rows], color=COLOURS[: len(rows)])
    right.bar_label(bars, fmt="%.1f", padding=3)
    right.set(xlabel="tokens across a word boundary [%]", yticklabels=[])
    for axis in (left, right):
        axis.invert_yaxis()
    return figure


def vocabulary_sizes(measured: Mapping[str, Mapping[int, float]]) -> Any:
    """Plot {algorithm: {vocabulary size: characters per token}} with one line per algorithm."""
    figure, axis = subplots()
    for (name, points), colour in zip(measured.items(), COLOURS, strict=False):
        axis.plot(list(points), list(points.values()), marker="o", label=name, color=colour)
    axis.set(xscale="log", xlabel="vocabulary [entries]", ylabel="characters per token")
    sizes = sorted({size for points in measured.values() for size in points})
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.minorticks_off()
    axis.legend(frameon=False)
    return figure


def overlaps(names: Sequence[str], values: Sequence[Sequence[float]]) -> Any:
    """Draw a matrix with the share (0 to 1) of entries that each pair of vocabularies has in common."""
    figure, axis = subplots(height=3.8, width=5.4)
    image = axis.imshow(values, vmin=0, vmax=1, cmap="Blues")
    axis.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axis.set_yticks(range(len(names)), names)
    for (row, column), value in np.ndenumerate(np.asarray(values)):
        axis.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.6 else "black")
    figure.colorbar(image, ax=axis, label="shared entries")
    return figure


def piece_lengths(segmented: Sequence[str], raw: Sequence[str]) -> Any:
    """Draw a bar chart of the distinct pieces that BPE training reads, by length, with and without segmentation."""
    figure, axis = subplots()
    for name, pieces, colour in (("segmented", segmented, AFTER), ("unsegmented", raw, BEFORE)):
        lengths = Counter(min(len(piece), 40) for piece in set(pieces))
        label = f"{name}: {len(set(pieces)):,} distinct"
        axis.bar(list(lengths), list(lengths.values()), color=colour, alpha=0.7, label=label)
    axis.set(xlabel="characters per piece (40 = 40 or more)", ylabel="distinct pieces")
    axis.legend(frameon=False)
    return figure
