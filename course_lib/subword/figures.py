"""Figures for chapter 3."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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


def costs(text: str, codec: Codec, by_character: Sequence[float], by_token: Sequence[float]) -> Any:
    """Draw the bits of each character of a normalized text under a trigram, and of each token under `aozora`."""
    figure, axis = subplots(height=3.0)
    of_tokens: dict[tuple[int, int], float] = defaultdict(float)
    # The bytes of one character have the same place.
    for place, cost in zip(codec.tokenizer.encode(text, add_special_tokens=False).offsets, by_token, strict=True):
        of_tokens[place] += cost
    rows = (
        ("trigram", GREY, 1, {(at, at + 1): cost for at, cost in enumerate(by_character)}),
        ("aozora", BLUE, -1, of_tokens),
    )
    for name, colour, sign, bars in rows:
        starts, widths = [first for first, _ in bars], [end - first - 0.08 for first, end in bars]
        label = tr("{name}: {bits:.0f} bits", name=name, bits=sum(bars.values()))
        drawn = axis.bar(starts, [sign * cost for cost in bars.values()], widths, align="edge", color=colour.plot)
        axis.bar_label(drawn, [f"{cost:.1f}" for cost in bars.values()], padding=2, fontsize=8)
        axis.text(1, 0.5 + 0.42 * sign, label, color=colour.line, transform=axis.transAxes, ha="right", va="center")
    axis.axhline(0, color=GREY.line, linewidth=0.8)
    axis.set_xticks([at + 0.46 for at in range(len(text))], [*text])
    axis.tick_params(axis="x", length=0)
    axis.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    axis.set(ylabel=tr("bits"), xlim=(-0.3, len(text)))
    axis.margins(y=0.15)
    return figure
