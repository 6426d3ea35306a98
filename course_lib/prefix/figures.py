"""Figures for chapter 6."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.language.words import tr
from course_lib.notebooks.plot import BLUE, GREEN, GREY, ORANGE, PLOT_COLORS, subplots
from course_lib.prefix.instructions import KINDS


def visibility(tokens: Sequence[str], length: int) -> Any:
    """Draw the attention mask for tokens after a prefix of `length` positions, with one row per token."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    names = [*(f"P{position}" for position in range(length)), *tokens]
    figure, axis = subplots(height=1.5 + 0.36 * len(tokens), width=1.6 + 0.62 * len(names))
    seen = np.tri(len(tokens), len(names), length) * np.where(np.arange(len(names)) < length, 1, 2)
    axis.pcolormesh(seen, cmap=ListedColormap(["white", ORANGE.plot, BLUE.plot]), edgecolors="white", linewidth=3)
    axis.set(ylabel=tr("a token …"), title=tr("… sees"))
    axis.set_xticks(np.arange(len(names)) + 0.5, names)
    axis.set_yticks(np.arange(len(tokens)) + 0.5, tokens)
    axis.invert_yaxis()
    axis.xaxis.tick_top()
    key = [
        Patch(facecolor=ORANGE.plot, label=tr("prefix: trained, seen by every token")),
        Patch(facecolor=BLUE.plot, label=tr("text: itself and what stands before it")),
    ]
    figure.legend(handles=key, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def losses(
    logs: Mapping[str, Sequence[Mapping[str, Any]]], without: Mapping[str, float], loops: Mapping[str, Sequence[float]]
) -> Any:
    """Plot each task's losses, by its run's log and by the notebook's loop, and the base's loss without prefix."""
    figure, axes = subplots(len(logs), height=3.2, width=9.0, squeeze=True)
    for axis, (task, entries) in zip(axes if len(logs) > 1 else [axes], logs.items(), strict=True):
        steps = loops.get(task, ())
        if steps:
            axis.plot(range(1, len(steps) + 1), steps, color=GREEN.plot, linewidth=0.7, label=tr("our loop, each step"))
        for kind, name, style, colour in (
            ("train", tr("the product, mean of ten steps"), "-", BLUE.plot),
            ("eval", tr("the product, held out"), "o", ORANGE.plot),
        ):
            points = [(entry["step"], entry["loss"]) for entry in entries if entry["kind"] == kind]
            axis.plot(*zip(*points, strict=True), style, color=colour, label=name)
        axis.axhline(without[task], color=GREY.plot, linestyle="--", label=tr("held out, without prefix"))
        axis.set(title=tr(task), xlabel=tr("step"), ylabel=tr("loss [nats per token]"))
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
    handles = {
        label: handle for axis in figure.axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def comparison(shares: Mapping[str, Sequence[float]], differences: Mapping[str, tuple[float, float, float]]) -> Any:
    """Plot each seed's share of exact answers by method, and differences of two methods with their intervals."""
    figure, axes = subplots(2, height=2.8, width=9.0)
    for row, values in enumerate(shares.values()):
        # A little apart, so that equal values stay visible.
        heights = row + np.linspace(-0.15, 0.15, len(values))
        axes[0].plot([100 * value for value in values], heights, "o", color=PLOT_COLORS[row], markersize=7)
        axes[0].set(xlim=(-4, 104), xlabel=tr("exact answers of each seed [%]"))
    axes[0].set_yticks(range(len(shares)), [tr(name) for name in shares])
    for row, (mean, low, high) in enumerate(differences.values()):
        axes[1].plot([100 * low, 100 * high], [row, row], color=BLUE.plot, linewidth=3)
        axes[1].plot(100 * mean, row, "o", color=BLUE.plot, markersize=7)
    axes[1].axvline(0, color=GREY.plot, linestyle="--")
    axes[1].set_yticks(range(len(differences)), list(differences))
    axes[1].set(xlabel=tr("difference, with its 95 % interval [points]"))
    for axis, rows in zip(axes, (shares, differences), strict=True):
        axis.set_ylim(len(rows) - 0.5, -0.5)
    return figure


def answers(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Plot the right answers to the judging questions by kind, and the answers that are one sentence, of each way.

    `rows` are those of instructions.csv; a way has a row for each seed.
    """
    judged = [row for row in rows if row["part"] == "judge"]
    ways = list(dict.fromkeys(row["way"] for row in judged))
    figure, axes = subplots(2, height=3.4, width=9.0)
    for axis, names, most in ((axes[0], KINDS, 20), (axes[1], ("format",), 100)):
        for number, way in enumerate(ways):
            for row in (row for row in judged if row["way"] == way):
                heights = np.arange(len(names)) + 0.18 * (number - (len(ways) - 1) / 2)
                values = [row[name] for name in names]
                label = way if row["seed"] in ("", 0) else None
                axis.plot(values, heights, "o", color=PLOT_COLORS[number], markersize=7, label=label)
        axis.set(xlim=(-0.04 * most, 1.04 * most), ylim=(len(names) - 0.4, -0.6))
        axis.set_xticks(range(0, most + 1, most // 4))
        axis.set_yticks(range(len(names)), list(names))
    axes[0].set(xlabel=tr("right answers of 20"))
    axes[1].set(xlabel=tr("answers of 100 that are one sentence"))
    axes[1].set_yticks([])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def reward_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Any:
    """Plot the curves of runs that learn from a reward: four panels, a color for each run, a line for each seed.

    `runs` has by name the rows of rewards_curves.csv.
    """
    panels = (
        ("reward", tr("reward"), 1),
        ("equal", tr("groups of equal rewards [%]"), 100),
        ("tokens", tr("tokens of a text"), 1),
        ("commonest", tr("texts of the commonest genre [%]"), 100),
    )
    figure, axes = subplots(len(panels), height=3.0, width=11.0)
    for axis, (key, title, factor) in zip(axes, panels, strict=True):
        for number, (name, rows) in enumerate(runs.items()):
            for seed in dict.fromkeys(row["seed"] for row in rows):
                found = [row for row in rows if row["seed"] == seed]
                heights = np.array([factor * row[key] for row in found])
                label = name if seed == rows[0]["seed"] else None
                axis.plot([row["update"] for row in found], heights, ".-", color=PLOT_COLORS[number], label=label)
        heights = np.concatenate([line.get_ydata() for line in axis.lines])
        highest = 100 if factor == 100 else heights.max()
        axis.set(xlabel=tr("update"), ylim=(1.05 * min(0, heights.min()), 1.05 * highest))
        axis.set_title(title, fontsize=10)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(runs), frameon=False, fontsize=9)
    return figure


def frontier(judged: Mapping[str, Sequence[Mapping[str, float]]], source: float) -> Any:
    """Plot right texts against bits per character above the source: a dot for each seed, a name at each run's mean."""
    figure, axis = subplots(height=4.0)
    for number, (name, rows) in enumerate(judged.items()):
        above, rights = [row["bits"] - source for row in rows], [100 * row["right"] for row in rows]
        color = GREY.plot if name == "start" else PLOT_COLORS[number - 1]
        axis.plot(above, rights, "o", color=color, markersize=5, alpha=0.5)
        axis.plot(np.mean(above), np.mean(rights), "D", color=color, markersize=8, label=name)
    axis.set(xlabel=tr("bits per character above the source"), ylabel=tr("right texts [%]"), xlim=(0, None))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.legend(frameon=False, fontsize=9, loc="lower right")
    return figure
