"""Plots for chapter 5: routing, attention masks, spout vectors, memory and losses. Each function returns a figure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from course_lib.figures import AFTER, BEFORE, COLOURS, subplots

# Matrix of values: a NumPy array, a CPU tensor or nested lists.
Matrix = Any


def routing(probabilities: Matrix, tokens: Sequence[str], room: Sequence[bool]) -> Any:
    """Plot router probabilities [tokens][experts].

    A box marks each chosen expert. A cross marks a chosen expert that had no room for the token.
    """
    # [experts, tokens]
    shown = np.asarray(probabilities).T
    figure, axis = subplots(height=1.2 + 0.32 * len(shown), width=9.0)
    image = axis.imshow(shown, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for token, (expert, fits) in enumerate(zip(shown.argmax(0), room, strict=True)):
        colour = AFTER if fits else COLOURS[3]
        axis.add_patch(_box(token, expert, colour))
        if not fits:
            axis.plot(token, expert, marker="x", color=colour, markersize=9, markeredgewidth=2)
    axis.set_xticks(range(len(tokens)), tokens)
    axis.set_yticks(range(len(shown)), [f"expert {expert}" for expert in range(len(shown))])
    axis.set(title="□ chosen   × chosen, but full")
    figure.colorbar(image, ax=axis, label="probability")
    return figure


def expert_load(loads: Mapping[str, Matrix]) -> Any:
    """Plot the fraction of tokens that choose each expert, one panel per model. `loads[name]` is [layers][experts]."""
    figure, axes = _panels(len(loads), height=2.6)
    for axis, (name, load) in zip(axes, loads.items(), strict=True):
        shares = np.asarray(load)
        image = axis.imshow(shares, cmap="Blues", vmin=0, vmax=max(0.5, shares.max()), aspect="auto")
        _numbers(axis, [[f"{share:.0%}" for share in row] for row in shares], dark=shares > 0.3)
        axis.set_xticks(range(shares.shape[1]), [f"expert {expert}" for expert in range(shares.shape[1])])
        axis.set_yticks(range(len(shares)), [f"layer {layer}" for layer in range(len(shares))])
        axis.set(title=name)
    figure.colorbar(image, ax=axes, label="share of the tokens")
    return figure


def visibility(masks: Mapping[str, Matrix], tokens: Sequence[str], slots: Sequence[str]) -> Any:
    """Plot attention masks [tokens][slots], one panel per mask. A mask with fewer columns uses the last slots.

    A filled cell means that the token in its row attends to the slot in its column. Slots after the token itself and
    the spout slot have their own colors.
    """
    columns = [np.shape(mask)[1] for mask in masks.values()]
    height, width = 0.9 + 0.28 * len(tokens), 0.8 * len(masks) + 0.28 * sum(columns)
    figure, axes = _panels(len(masks), height, width, width_ratios=columns)
    for axis, (name, mask) in zip(axes, masks.items(), strict=True):
        seen = np.asarray(mask, dtype=bool)
        names = slots[len(slots) - seen.shape[1] :]
        ahead = np.triu(np.ones_like(seen), k=seen.shape[1] - len(tokens) + 1)
        for row, column in np.argwhere(seen):
            colour = COLOURS[1] if ahead[row, column] else COLOURS[2] if names[column] == "spout" else AFTER
            axis.add_patch(_box(column, row, colour, fill=True))
        axis.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(tokens) - 0.5, -0.5), title=name, aspect="equal")
        axis.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
        axis.set_yticks(range(len(tokens)), tokens, fontsize=8)
    return figure


def spout_vectors(vectors: Mapping[str, Sequence[float]]) -> Any:
    """Plot the spout input vectors as bars, one panel per mode. An empty vector means that there is no spout."""
    figure, axes = _panels(len(vectors), height=2.0, width=9.0, sharey=True)
    for axis, (name, vector) in zip(axes, vectors.items(), strict=True):
        axis.bar(range(len(vector)), vector, color=AFTER)
        axis.set(title=name, ylim=(0, 1.05), xlabel="place in the vector")
        if not len(vector):
            axis.text(0.5, 0.5, "no slot", color=BEFORE, ha="center", transform=axis.transAxes)
            axis.set(xticks=[])
    return figure


def memory(panels: Mapping[str, Mapping[str, Mapping[str, float]]], card: float | None = None) -> Any:
    """Plot memory use on one device [bytes] as stacked bars.

    `panels` maps model → training method → memory component → size. A line in the last panel marks `card`, the device
    memory [bytes].
    """
    figure, axes = _panels(len(panels), height=2.6, width=10.0)
    for axis, (name, bars) in zip(axes, panels.items(), strict=True):
        unit, word = (1e9, "GB") if max(sum(bar.values()) for bar in bars.values()) >= 1e9 else (1e6, "MB")
        left = np.zeros(len(bars))
        for part, colour in zip(next(iter(bars.values())), COLOURS, strict=False):
            widths = np.array([bar[part] / unit for bar in bars.values()])
            axis.barh(range(len(bars)), widths, left=left, label=part, color=colour)
            left += widths
        axis.set(title=name, xlabel=f"memory of one device [{word}]")
        axis.set_yticks(range(len(bars)), bars if axis is axes[0] else [""] * len(bars))
        axis.invert_yaxis()
    if card:
        axis.axvline(card / unit, color=BEFORE, linestyle="--", linewidth=1)
        axis.text(card / unit, len(bars) - 0.6, f" {card / 1e9:.0f} GB", color=BEFORE, fontsize=8)
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def loss_matrix(losses: Matrix, names: Sequence[str]) -> Any:
    """Plot the held-out loss [nats per token] for texts of each class (rows) with each class in the spout (columns).

    The color shows how far a loss is above the lowest loss in its row.
    """
    values = np.asarray(losses)
    figure, axis = subplots(height=3.9, width=6.2)
    above = values - values.min(1, keepdims=True)
    image = axis.imshow(above, cmap="Blues_r", vmin=0)
    _numbers(axis, [[f"{loss:.2f}" for loss in row] for row in values], dark=above < 0.5 * above.max())
    for row, column in enumerate(values.argmin(1)):
        axis.add_patch(_box(column, row, COLOURS[1]))
    axis.set_xticks(range(len(names)), names)
    axis.set_yticks(range(len(names)), names)
    axis.set(xlabel="class in the spout", ylabel="true class")
    axis.set(title="held-out loss [nats per token]; □ lowest of the row")
    figure.colorbar(image, ax=axis, label="above the lowest of the row [nats]")
    return figure


def _panels(number: int, height: float, width: float = 8.0, **options: Any) -> tuple[Any, list[Any]]:
    """Return a figure and a list of its axes in one row. The axes are a list even if there is only one panel."""
    figure, axes = subplots(number, height, width, **options)
    return figure, list(axes) if number > 1 else [axes]


def _numbers(axis: Any, words: Sequence[Sequence[str]], dark: npt.NDArray[np.bool_]) -> None:
    """Write text into the cells of a matrix: white in dark cells, black in the others."""
    for (row, column), white in np.ndenumerate(dark):
        axis.text(column, row, words[row][column], ha="center", va="center", color="white" if white else "black")


def _box(column: float, row: float, colour: str, fill: bool = False) -> Any:
    """Return a rectangle for a matrix cell, either outlined or filled."""
    from matplotlib.patches import Rectangle

    if fill:
        return Rectangle((column - 0.45, row - 0.45), 0.9, 0.9, facecolor=colour, edgecolor="none")
    return Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor=colour, linewidth=1.8)
