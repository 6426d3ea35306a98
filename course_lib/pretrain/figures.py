"""Figures for chapter 4: losses, the ladder of baselines, memory and ZeRO shards."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.plot import BLUE, GREY, ORANGE, PLOT_COLORS, RED, subplots

# Ticks of a logarithmic axis [nats].
LOSSES = (0.25, 0.5, 1, 2, 4, 8)


def loss_curve(
    log: Sequence[Mapping[str, Any]],
    vocab_size: int | None = None,
    unigram: float | None = None,
    source: float | None = None,
) -> Any:
    """Plot the losses of a log, with lines for guessing, the unigram and the source's entropy [nats per token]."""
    figure, axis = subplots()
    kinds = (("train", tr("training"), BLUE.plot, None, "top"), ("eval", tr("held out"), ORANGE.plot, "o", "bottom"))
    for kind, name, colour, marker, side in kinds:
        entries = [entry for entry in log if entry["kind"] == kind]
        steps, losses = [entry["step"] for entry in entries], [entry["loss"] for entry in entries]
        axis.plot(steps, losses, color=colour, marker=marker)
        if entries:
            axis.annotate(f" {name}", (steps[-1], losses[-1]), xytext=(6, 0), textcoords="offset points",
                          color=colour, va=side)  # fmt: skip
    lines = (
        (vocab_size and math.log(vocab_size), tr("guessing: ln V"), ":", "right", "bottom"),
        (unigram, tr("unigram model"), "--", "right", "bottom"),
        (source, tr("the source"), "-.", "left", "top"),
    )
    for height, name, style, end, side in lines:
        if height:
            axis.axhline(height, color=GREY.plot, linestyle=style)
            axis.annotate(f"{name} = {height:.2f}", (end == "right", height), xycoords=axis.get_yaxis_transform(),
                          xytext=(0, 2 if side == "bottom" else -2), textcoords="offset points", color=GREY.plot,
                          ha=end, va=side)  # fmt: skip
    axis.set(xlabel=tr("step"), ylabel=tr("loss [nats per token]"))
    if source:
        # The end of the curves is so near to the source that only a logarithmic axis shows the distance.
        axis.set_yscale("log")
        axis.set_yticks(LOSSES, [f"{loss:g}" for loss in LOSSES])
        axis.minorticks_off()
        axis.set_ylim(bottom=0.8 * source)
    return figure


def resumed_curve(
    unbroken: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> Any:
    """Plot the training loss of a run that was killed and resumed over that of the same run without a break."""
    figure, axis = subplots(height=3.0)
    for log, style in (
        (unbroken, {"color": "#cccccc", "linewidth": 7, "label": tr("without a break")}),
        (before, {"color": ORANGE.plot, "marker": "o", "markersize": 9, "markerfacecolor": "none",
                  "label": tr("until it was killed")}),
        (after, {"color": BLUE.plot, "marker": "o", "markersize": 4, "label": tr("resumed")}),
    ):  # fmt: skip
        axis.plot([entry["step"] for entry in log], [entry["loss"] for entry in log], **style)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set(xlabel=tr("step"), ylabel=tr("loss [nats per token]"))
    axis.legend(frameon=False)
    return figure


def ladder(bits: Mapping[str, float], nats_per_bit: float | None = None) -> Any:
    """Plot the bits per character of models on a logarithmic axis; a second axis has the nats per token."""
    figure, axis = subplots(height=(1.2 if nats_per_bit else 0.8) + 0.34 * len(bits))
    for row, (name, value) in enumerate(bits.items()):
        axis.plot(value, row, "o", color=BLUE.plot, markersize=8)
        label = f"{tr(name)}  {value:.{3 if value < 1 else 2}f}"
        axis.annotate(label, (value, row), xytext=(9, 0), textcoords="offset points", va="center")
    axis.set_xscale("log")
    axis.set_xlim(0.7 * min(bits.values()), 5 * max(bits.values()))
    axis.set_xticks(values := [0.2, 0.5, 1, 2, 5, 10], [f"{value:g}" for value in values])
    axis.set_yticks([])
    axis.set(xlabel=tr("bits per character"), ylim=(len(bits) - 0.4, -0.6))
    axis.minorticks_off()
    if nats_per_bit:
        nats = axis.secondary_xaxis("top", functions=(lambda x: x * nats_per_bit, lambda x: x / nats_per_bit))
        nats.set_xticks(values, [f"{value:g}" for value in values])
        nats.set_xlabel(tr("nats per token"))
        nats.minorticks_off()
    return figure


def optimizers(logs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Any:
    """Plot the held-out losses of runs that differ in the optimizer."""
    figure, axis = subplots(height=3.0)
    for (name, log), colour, marker in zip(logs.items(), PLOT_COLORS, "os", strict=False):
        entries = [entry for entry in log if entry["kind"] == "eval"]
        steps, losses = [entry["step"] for entry in entries], [entry["loss"] for entry in entries]
        axis.plot(steps, losses, color=colour, marker=marker, label=name)
    axis.set(xlabel=tr("step"), ylabel=tr("held-out loss [nats per token]"), ylim=(0, None))
    axis.legend(frameon=False)
    return figure


def memory(bars: Mapping[str, Mapping[str, float]], cards: Sequence[float] = ()) -> Any:
    """Plot the memory use of one GPU by part, as a stacked bar for each case, and lines for the memory of cards."""
    figure, axis = subplots(height=0.9 + 0.45 * len(bars))
    parts = list(dict.fromkeys(part for bar in bars.values() for part in bar))
    left = np.zeros(len(bars))
    for part, colour in zip(parts, (*PLOT_COLORS, "#c9b458", "#4f4f4f"), strict=False):
        widths = [bar.get(part, 0) / 1e9 for bar in bars.values()]
        axis.barh([tr(name) for name in bars], widths, left=left, label=tr(part), color=colour)
        left += widths
    for card in cards:
        axis.axvline(card / 1e9, color=GREY.plot, linestyle="--", linewidth=1)
        axis.text(card / 1e9, -0.62, f" {card / 1e9:.0f} GB", color=GREY.plot, fontsize=8, ha="left")
    axis.invert_yaxis()
    axis.set(xlabel=tr("memory of one GPU [GB]"))
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def shards(rows: Mapping[str, Sequence[Sequence[str]]], ranks: int) -> Any:
    """Draw what each rank holds under ZeRO: a panel per stage, whose parts in `rows` are sharded, the others copied."""
    figure, axes = subplots(len(rows), height=2.6, width=10.0)
    kinds = {tr_noop("weights"): 2, tr_noop("gradients"): 2, tr_noop("optimizer states"): 12}
    for axis, (stage, sharded) in zip(axes, rows.items(), strict=True):
        for row, kind in enumerate(kinds):
            for rank in range(ranks):
                width, shift = (0.9 / ranks, 0.9 / ranks * rank) if kind in sharded else (0.9, 0)
                axis.barh(row, width, left=rank + shift, color=PLOT_COLORS[row])
                axis.barh(row, 0.9, left=rank, fill=False, edgecolor=GREY.plot, linewidth=0.6)
        axis.set_title(tr(stage))
        axis.set_xticks([rank + 0.45 for rank in range(ranks)], [tr("rank {rank}", rank=rank) for rank in range(ranks)])
        labels = [tr("{kind}\n{size} bytes", kind=tr(kind), size=size) for kind, size in kinds.items()]
        axis.set_yticks(range(len(kinds)), labels if axis is axes[0] else [""] * len(kinds))
        axis.invert_yaxis()
    return figure


def attention(weights: Any, tokens: Sequence[str], marked: Sequence[int] = ()) -> Any:
    """Plot the attention weights [seq, seq] of one head; rows are the tokens that read, those in `marked` in red."""
    figure, axis = subplots(height=7.4)
    image = axis.imshow(weights.detach(), cmap="Blues", vmin=0, vmax=1)
    positions = range(len(tokens))
    axis.set_xticks(positions, tokens, fontsize=9, rotation=90)
    axis.set_yticks(positions, tokens, fontsize=9)
    for row in marked:
        axis.get_yticklabels()[row].set_color(RED.plot)
        axis.add_patch(_frame(row, len(tokens)))
    axis.set(xlabel=tr("token that is read"), ylabel=tr("token that reads"))
    figure.colorbar(image, ax=axis, label=tr("attention weight"), shrink=0.6)
    return figure


def _frame(row: int, columns: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((-0.5, row - 0.5), columns, 1, fill=False, edgecolor=RED.plot, linewidth=1)


def facts_and_variety(points: Mapping[float, tuple[float, float]], source: tuple[float, float] | None = None) -> Any:
    """Plot texts without contradiction and different sentences [%] over the temperature, with lines for the source."""
    figure, axis = subplots(height=4.2)
    names = (tr("texts without contradiction"), tr("different sentences"))
    for number, (name, colour, marker) in enumerate(zip(names, PLOT_COLORS, "os", strict=False)):
        axis.plot(
            list(points), [100 * pair[number] for pair in points.values()], color=colour, marker=marker, label=name
        )
        if source:
            label = tr("the same, of the world's own texts")
            axis.axhline(100 * source[number], color=colour, linestyle="--", linewidth=1, label=label)
    axis.set(xlabel=tr("temperature"), ylabel=tr("share [%]"), ylim=(0, 104))
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=2)
    return figure
