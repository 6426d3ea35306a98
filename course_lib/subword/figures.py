"""Figures for chapter 3."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.evaluation.bits import Bits
from course_lib.language.words import tr
from course_lib.notebooks.plot import AFTER, BEFORE, COLOURS, subplots
from course_lib.subword.compare import Measures, entries
from course_lib.subword.folder import Codec


def comparison(rows: Sequence[Measures]) -> Any:
    """Draw bar charts of characters per token and of the share of tokens that cross a word boundary [%]."""
    figure, axes = subplots(2)
    densities, crossings = [row.characters_per_token for row in rows], [100 * row.crossing for row in rows]
    for axis, values, form in zip(axes, (densities, crossings), ("%.2f", "%.1f"), strict=True):
        bars = axis.barh([row.name for row in rows], values, color=COLOURS[: len(rows)])
        axis.bar_label(bars, fmt=form, padding=3)
        axis.invert_yaxis()
        axis.margins(x=0.12)
    axes[0].set(xlabel=tr("characters per token"))
    axes[1].set(xlabel=tr("tokens across a word boundary [%]"), yticklabels=[])
    return figure


def vocabulary_sizes(measured: Mapping[str, Mapping[int, float]]) -> Any:
    """Plot {algorithm: {vocabulary size: characters per token}} with one line per algorithm."""
    figure, axis = subplots()
    for (name, points), colour in zip(measured.items(), COLOURS, strict=False):
        axis.plot(list(points), list(points.values()), marker="o", label=tr(name), color=colour)
    axis.set(xscale="log", xlabel=tr("vocabulary [entries]"), ylabel=tr("characters per token"))
    sizes = sorted({size for points in measured.values() for size in points})
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.minorticks_off()
    axis.legend(frameon=False)
    return figure


def entry_lengths(codecs: Mapping[str, Codec]) -> Any:
    """Draw each vocabulary as a bar, divided by the length of its entries."""
    from matplotlib.colors import to_rgb

    figure, axis = subplots(height=2.6)
    kinds = [tr("special and byte tokens"), tr("1 character"), "2", "3", tr("4 or more")]
    rows = []
    for codec in codecs.values():
        lengths = Counter(min(len(entry), 4) for entry in entries(codec))
        rows.append([codec.tokenizer.get_vocab_size() - lengths.total(), *(lengths[size] for size in (1, 2, 3, 4))])
    left = np.zeros(len(rows))
    # Shades of one color for the lengths, the longest darkest.
    shades = [np.array(to_rgb(COLOURS[0])) * share + 1 - share for share in (0.45, 0.7, 1.0)]
    for kind, values, colour in zip(kinds, np.transpose(rows), [COLOURS[5], COLOURS[1], *shades], strict=True):
        bars = axis.barh(list(codecs), values, left=left, color=colour, label=kind)
        axis.bar_label(bars, [f"{value:,}" if value > 200 else "" for value in values], label_type="center", fontsize=8)
        left += values
    axis.invert_yaxis()
    axis.set(xlabel=tr("entries"), xlim=(0, left.max()))
    axis.legend(frameon=False, ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8)
    return figure


def small_models(found: Mapping[str, Sequence[Bits]]) -> Any:
    """Draw the bits per character of each tokenizer's models: a point per seed, and a line at their mean."""
    figure, axis = subplots(height=2.6)
    for row, (values, colour) in enumerate(zip(found.values(), COLOURS, strict=False)):
        each = [value.bits_per_character for value in values]
        axis.scatter(each, [row] * len(each), color=colour, alpha=0.8, zorder=3)
        axis.vlines(np.mean(each), row - 0.3, row + 0.3, color=colour)
    labels = [
        tr("{name}\n{density:.2f} chars/token", name=name, density=values[0].characters_per_token)
        for name, values in found.items()
    ]
    axis.set_yticks(range(len(labels)), labels)
    axis.set(xlabel=tr("bits per character"))
    axis.invert_yaxis()
    axis.margins(y=0.2)
    return figure


def piece_lengths(segmented: Sequence[str], raw: Sequence[str]) -> Any:
    """Draw a bar chart of the distinct pieces that BPE training reads, by length, with and without segmentation."""
    figure, axis = subplots()
    for name, pieces, colour in ((tr("segmented"), set(segmented), AFTER), (tr("unsegmented"), set(raw), BEFORE)):
        lengths = Counter(min(len(piece), 40) for piece in pieces)
        label = tr("{name}: {number:,} distinct", name=name, number=len(pieces))
        axis.bar(list(lengths), list(lengths.values()), color=colour, alpha=0.7, label=label)
    axis.set(xlabel=tr("characters per piece (40 = 40 or more)"), ylabel=tr("distinct pieces"))
    axis.legend(frameon=False)
    return figure
