"""Figures for chapter 3."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.evaluation.bits import Bits
from course_lib.language.words import tr
from course_lib.notebooks.plot import BLUE, GREY, ORANGE, PLOT_COLORS, subplots
from course_lib.subword.compare import Measures, entries
from course_lib.subword.folder import WORD, Codec


def comparison(rows: Sequence[Measures]) -> Any:
    """Draw bar charts of characters per token and of the share of tokens that cross a word boundary [%]."""
    figure, axes = subplots(2)
    densities, crossings = [row.characters_per_token for row in rows], [100 * row.crossing for row in rows]
    for axis, values, form in zip(axes, (densities, crossings), ("%.2f", "%.1f"), strict=True):
        bars = axis.barh([row.name for row in rows], values, color=PLOT_COLORS[: len(rows)])
        axis.bar_label(bars, fmt=form, padding=3)
        axis.invert_yaxis()
        axis.margins(x=0.12)
    axes[0].set(xlabel=tr("characters per token"))
    axes[1].set(xlabel=tr("tokens across a word boundary [%]"), yticklabels=[])
    return figure


def entry_lengths(codecs: Mapping[str, Codec]) -> Any:
    """Draw each vocabulary as a bar, divided by the length of its entries; ▁ counts only where it stands alone."""
    from matplotlib.colors import to_rgb

    figure, axis = subplots(height=2.8)
    kinds = [tr("special and byte tokens"), tr("1 character"), "2", "3", tr("4 or more")]
    rows = []
    for codec in codecs.values():
        lengths = Counter(min(len(entry), 4) for entry in entries(codec))
        lengths[1] += codec.tokenizer.token_to_id(WORD) is not None
        rows.append([codec.tokenizer.get_vocab_size() - lengths.total(), *(lengths[size] for size in (1, 2, 3, 4))])
    left = np.zeros(len(rows))
    # Shades of one color for the lengths, the longest darkest.
    shades = [np.array(to_rgb(BLUE.plot)) * share + 1 - share for share in (0.45, 0.7, 1.0)]
    for kind, values, colour in zip(kinds, np.transpose(rows), [GREY.plot, ORANGE.plot, *shades], strict=True):
        bars = axis.barh(list(codecs), values, left=left, color=colour, label=kind)
        if kind == kinds[-1]:
            # The last part may be too narrow for its number.
            axis.bar_label(bars, [f"{value:,}" for value in values], padding=3, fontsize=9)
        else:
            axis.bar_label(bars, [f"{value:,}" for value in values], label_type="center", fontsize=9)
        left += values
    axis.invert_yaxis()
    axis.set(xlabel=tr("entries"), xlim=(0, 1.06 * left.max()))
    axis.legend(frameon=False, ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9)
    return figure


def small_models(found: Mapping[str, Sequence[Bits]], same_steps: Mapping[str, Sequence[Bits]] | None = None) -> Any:
    """Draw the bits per character of each tokenizer's models: a point per seed, and a line at their mean.

    Full points are models that read the same text, open ones (`same_steps`) those with the same number of steps.
    """
    figure, axis = subplots(height=2.8)
    colours = dict(zip(found, PLOT_COLORS, strict=False))
    for row, name in enumerate(found):
        for models, shift, marker in ((found, -0.16, "o"), (same_steps or {}, 0.16, "D")):
            each = [value.bits_per_character for value in models.get(name, ())]
            at, face = row + shift * bool(same_steps), colours[name] if marker == "o" else "white"
            axis.scatter(each, [at] * len(each), marker=marker, edgecolors=colours[name], facecolors=face, zorder=3)
            axis.vlines([np.mean(each)] if each else [], at - 0.15, at + 0.15, color=colours[name])
    labels = [
        tr("{name}\n{density:.2f} chars/token", name=name, density=values[0].characters_per_token)
        for name, values in found.items()
    ]
    axis.set_yticks(range(len(labels)), labels)
    axis.set(xlabel=tr("bits per character"))
    axis.invert_yaxis()
    axis.margins(y=0.2)
    if same_steps:
        for marker, face, label in (("o", GREY.plot, tr("equal text")), ("D", "white", tr("equal steps"))):
            axis.scatter([], [], marker=marker, edgecolors=GREY.plot, facecolors=face, label=label)
        axis.legend(frameon=False, loc="upper right")
    return figure
