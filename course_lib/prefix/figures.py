"""Figures for chapter 6."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.language.words import tr
from course_lib.notebooks.plot import AFTER, BEFORE, COLOURS, subplots
from course_lib.prefix.comparison import Runs


def visibility(tokens: Sequence[str], length: int) -> Any:
    """Draw the attention mask for tokens after a prefix of `length` positions, with one row per token."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    names = [*(f"P{position}" for position in range(1, length + 1)), *tokens]
    figure, axis = subplots(height=1.5 + 0.36 * len(tokens), width=1.6 + 0.62 * len(names))
    seen = np.tri(len(tokens), len(names), length) * np.where(np.arange(len(names)) < length, 1, 2)
    axis.pcolormesh(seen, cmap=ListedColormap(["white", COLOURS[1], AFTER]), edgecolors="white", linewidth=3)
    axis.set(ylabel=tr("a token …"), title=tr("… sees"))
    axis.set_xticks(np.arange(len(names)) + 0.5, names)
    axis.set_yticks(np.arange(len(tokens)) + 0.5, tokens)
    axis.invert_yaxis()
    axis.xaxis.tick_top()
    key = [
        Patch(facecolor=COLOURS[1], label=tr("prefix: trained, seen by every token")),
        Patch(facecolor=AFTER, label=tr("text: itself and what stands before it")),
    ]
    figure.legend(handles=key, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def losses(logs: Mapping[str, Sequence[Mapping[str, Any]]], without: Mapping[str, float]) -> Any:
    """Plot each task's training and held-out loss, by its run's log, and the base's held-out loss without prefix."""
    figure, axes = subplots(len(logs), height=3.0, squeeze=True)
    for axis, (task, entries) in zip(axes if len(logs) > 1 else [axes], logs.items(), strict=True):
        for kind, name, style, colour in (
            ("train", tr("training"), "-", AFTER),
            ("eval", tr("held out"), "o", COLOURS[1]),
        ):
            points = [(entry["step"], entry["loss"]) for entry in entries if entry["kind"] == kind]
            axis.plot(*zip(*points, strict=True), style, color=colour, label=name)
        axis.axhline(without[task], color=BEFORE, linestyle="--", label=tr("held out, without prefix"))
        axis.set(title=tr(task), xlabel=tr("step"), ylabel=tr("loss [nats per token]"))
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False, fontsize=8)
    return figure


def lengths(cases: Mapping[int, Runs], without: tuple[float, float]) -> Any:
    """Plot held-out loss and exact matches against the prefix length; `without` has both for no prefix."""
    figure, axes = subplots(2, height=3.0)
    spreads = [[runs.held_out for runs in cases.values()], [runs.matches for runs in cases.values()]]
    for axis, values, baseline in zip(axes, spreads, without, strict=True):
        means, deviations = zip(*values, strict=True)
        axis.errorbar(list(cases), means, deviations, color=AFTER, marker="o", capsize=4, label=tr("with prefix"))
        axis.axhline(baseline, color=BEFORE, linestyle="--", label=tr("without prefix"))
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(cases), [str(length) for length in cases])
        axis.set_xlabel(tr("positions of the prefix"))
    axes[0].set_ylabel(tr("held-out loss [nats per token]"))
    axes[0].set_ylim(bottom=0)
    axes[0].legend(frameon=False, fontsize=8)
    axes[1].set(ylabel=tr("exact matches"), ylim=(-0.03, 1.03))
    return figure


def methods(cases: Mapping[str, Runs], without: float) -> Any:
    """Plot held-out loss against trained parameters, and memory; `without` is the loss without training [nats]."""
    figure, axes = subplots(2, height=3.0, width=9.0)
    # Open markers of different shapes stay visible where two methods lie on each other.
    for (name, runs), colour, marker in zip(cases.items(), COLOURS, "osD^", strict=False):
        style = {"marker": marker, "markersize": 9, "markerfacecolor": "none", "linestyle": "none", "capsize": 4}
        axes[0].errorbar(runs.runs[0].trained, *runs.held_out, color=colour, label=tr(name), **style)
    axes[0].axhline(without, color=BEFORE, linestyle="--", label=tr("no training"))
    axes[0].set(xscale="log", xlabel=tr("trained parameters"), ylabel=tr("held-out loss [nats per token]"))
    axes[0].set_ylim(bottom=0)
    rows = range(len(cases))
    states = [runs.runs[0].states / 1e6 for runs in cases.values()]
    kept = [runs.runs[0].activations / 1e6 for runs in cases.values()]
    axes[1].barh(rows, states, color=COLOURS[1], label=tr("gradients and optimizer states"))
    axes[1].barh(rows, kept, left=states, color=AFTER, label=tr("kept for the backward pass"))
    axes[1].set_yticks(rows, [tr(name) for name in cases])
    axes[1].invert_yaxis()
    axes[1].set_xlabel(tr("memory [MB]"))
    for axis in axes:
        axis.legend(frameon=False, fontsize=8)
    return figure
