"""Plots for chapter 5: routing, memory, losses and texts. Each function returns a figure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.language.words import tr
from course_lib.notebooks.plot import BLUE, GREY, ORANGE, PLOT_COLORS, RED, subplots

# Number of experts up to which a panel shows them as numbers.
FEW = 4
# Matrix of values: a NumPy array, a CPU tensor or nested lists.
Matrix = Any


def routing(probabilities: Matrix, tokens: Sequence[str], fits: Sequence[bool]) -> Any:
    """Plot router probabilities [tokens][experts], with a box on each chosen expert and a cross if it was full."""
    # [experts, tokens]
    shown = np.asarray(probabilities).T
    figure, axis = subplots(height=1.2 + 0.32 * len(shown), width=10.0)
    image = axis.imshow(shown, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for token, (expert, token_fits) in enumerate(zip(shown.argmax(0), fits, strict=True)):
        colour = BLUE.plot if token_fits else RED.plot
        axis.add_patch(_box(token, expert, colour))
        if not token_fits:
            axis.plot(token, expert, marker="x", color=colour, markersize=9, markeredgewidth=2)
    axis.set_xticks(range(len(tokens)), tokens, fontsize=9)
    axis.set_yticks(range(len(shown)), [tr("expert {expert}", expert=expert) for expert in range(len(shown))])
    axis.set(title=tr("□ chosen   × chosen, but full"), xlabel=tr("token, in the order of the text"))
    figure.colorbar(image, ax=axis, label=tr("probability"))
    return figure


def expert_load(loads: Mapping[str, Matrix]) -> Any:
    """Plot the fraction of tokens that choose each expert, one panel per model. `loads[name]` is [layers][experts]."""
    layers, experts = np.shape(next(iter(loads.values())))
    few = experts <= FEW
    figure, axes = subplots(len(loads), height=1.4 + 0.4 * layers)
    for axis, (name, load) in zip(np.atleast_1d(axes), loads.items(), strict=True):
        fractions = np.asarray(load)
        image = axis.imshow(fractions, cmap="Blues", vmin=0, vmax=max(0.5, fractions.max()), aspect="auto")
        for (row, column), share in np.ndenumerate(fractions) if few else ():
            _number(axis, column, row, f"{share:.0%}", dark=share > 0.3)
        names = [tr("expert {expert}", expert=expert) if few else str(expert) for expert in range(experts)]
        axis.set_xticks(range(experts), names)
        axis.set_yticks(range(layers), [tr("layer {layer}", layer=layer) for layer in range(layers)])
        axis.set(title=tr(name), xlabel="" if few else tr("expert"))
    figure.colorbar(image, ax=axes, label=tr("share of the tokens"))
    return figure


def memory(panels: Mapping[str, Mapping[str, Mapping[str, float]]], card: float | None = None) -> Any:
    """Plot memory on one device [bytes] as stacked bars: model → training method → component → size; `card` a line."""
    figure, axes = subplots(len(panels), height=2.6, width=10.0)
    axes = np.atleast_1d(axes)
    for axis, (name, bars) in zip(axes, panels.items(), strict=True):
        unit, word = (1e9, "GB") if max(sum(bar.values()) for bar in bars.values()) >= 1e9 else (1e6, "MB")
        left = np.zeros(len(bars))
        for part, colour in zip(next(iter(bars.values())), PLOT_COLORS, strict=False):
            widths = np.array([bar[part] / unit for bar in bars.values()])
            axis.barh(range(len(bars)), widths, left=left, label=tr(part), color=colour)
            left += widths
        axis.set(title=tr(name), xlabel=tr("memory of one device [{word}]", word=word))
        axis.set_yticks(range(len(bars)), [tr(way) if axis is axes[0] else "" for way in bars])
        axis.invert_yaxis()
    if card:
        axis.axvline(card / unit, color=GREY.plot, linestyle="--", linewidth=1)
        name = tr(" card of {size:.0f} GB", size=card / 1e9)
        axis.text(card / unit, len(bars) - 1, name, color=GREY.plot, va="center")
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    return figure


def loss_curves(runs: Mapping[str, Mapping[int, float]]) -> Any:
    """Plot the training loss [nats per token] of each run: step → loss, on logarithmic axes."""
    figure, axis = subplots(height=2.9)
    for (name, losses), colour in zip(runs.items(), PLOT_COLORS, strict=False):
        axis.plot([*losses], [*losses.values()], label=tr(name), color=colour)
    axis.set(xscale="log", yscale="log", xlabel=tr("step"), ylabel=tr("training loss [nats per token]"))
    for ticks, set_ticks in (((0.25, 0.5, 1, 2, 4), axis.set_yticks), ((1, 10, 100, 1000), axis.set_xticks)):
        set_ticks(ticks, list(map(str, ticks)))
        set_ticks([], minor=True)
    axis.set_xlim(0.9, 1.1 * max(map(max, runs.values())))
    axis.legend(frameon=False)
    return figure


def slot_attention(shares: Matrix, switch_layers: int) -> Any:
    """Plot the share of attention that the spout slot gets, [layers][positions], one line per layer."""
    figure, axis = subplots(height=2.9)
    for layer, (values, colour) in enumerate(zip(np.asarray(shares), PLOT_COLORS, strict=False)):
        name = tr("layer {layer}", layer=layer)
        if layer >= switch_layers:
            name = tr("layer {layer} (extra layer)", layer=layer)
        axis.plot(range(len(values)), values, label=name, color=colour)
    axis.set(xlabel=tr("position of the token that reads (0: SOT, 1: SEG, then the text)"), ylim=(0, 1))
    axis.set(ylabel=tr("share of attention to the slot"))
    axis.legend(frameon=False)
    return figure


def loss_matrix(losses: Matrix, names: Sequence[str]) -> Any:
    """Plot the held-out loss [nats per token] for texts of each class (rows) with each class in the spout (columns)."""
    values = np.asarray(losses)
    figure, axis = subplots(height=3.9, width=7.4)
    above = values - values.min(1, keepdims=True)
    image = axis.imshow(above, cmap="Blues_r", vmin=0)
    for (row, column), loss in np.ndenumerate(values):
        _number(axis, column, row, f"{loss:.2f}", dark=above[row, column] < 0.5 * above.max())
    for row, column in enumerate(values.argmin(1)):
        axis.add_patch(_box(column, row, ORANGE.plot))
    labels = [tr(name) for name in names]
    axis.set_xticks(range(len(labels)), labels)
    axis.set_yticks(range(len(labels)), labels)
    axis.set(xlabel=tr("class in the spout"), ylabel=tr("true class"))
    axis.set(title=tr("held-out loss [nats per token]; □ lowest of the row"))
    figure.colorbar(image, ax=axis, label=tr("above the lowest of the row [nats]"))
    return figure


def texts_by_bits(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Plot the share of clean texts against the bits per character above the source.

    A row has the `model`, its training `steps`, what it needs `above` the source, and the share `clean` of `texts`.
    Bars are 95 % intervals.
    """
    figure, axis = subplots(height=3.4)
    models = dict.fromkeys(row["model"] for row in rows)
    for model, colour, side in zip(models, PLOT_COLORS, ("right", "left"), strict=False):
        own = [row for row in rows if row["model"] == model]
        above, clean = (np.array([row[name] for row in own]) for name in ("above", "clean"))
        half = 1.96 * np.sqrt(clean * (1 - clean) / np.array([row["texts"] for row in own]))
        axis.errorbar(above, clean, half, fmt="o-", color=colour, capsize=3, label=model)
        for row in own:
            steps = tr("{steps:,.0f} steps", steps=row["steps"])
            offset = (-8 if side == "right" else 8, -12)
            axis.annotate(
                steps, (row["above"], row["clean"]), offset, textcoords="offset points", color=colour, ha=side
            )
    axis.set(xscale="log", ylim=(0, 1), xlabel=tr("bits per character above the source"))
    axis.set_ylabel(tr("clean texts"))
    ticks = (0.005, 0.01, 0.02, 0.04)
    axis.set_xticks(ticks, list(map(str, ticks)))
    axis.set_xticks([], minor=True)
    axis.set_xlim(0.004, 0.04)
    axis.legend(frameon=False)
    return figure


def _number(axis: Any, column: int, row: int, word: str, dark: bool) -> None:
    """Write text into the cell of a matrix: white in a dark cell, black in others."""
    axis.text(column, row, word, ha="center", va="center", color="white" if dark else "black")


def _box(column: float, row: float, colour: str) -> Any:
    """Return an outlined rectangle for a matrix cell."""
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, color=colour, linewidth=1.8)
