"""The figures of chapter 7."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from course_lib.language.words import tr
from course_lib.notebooks.plot import BLUE, ORANGE, PLOT_COLORS, rows_without_overlap, subplots
from course_lib.serving.layout import FtConfig, rank_bytes, uneven


def rank_memory(models: Mapping[str, FtConfig]) -> Any:
    """Plot the weights on each rank, shared and split, for each possible number of ranks, with a panel per model."""
    figure, axes = subplots(len(models), 3.2, 9.5)
    for axis, (name, config) in zip(axes if len(models) > 1 else [axes], models.items(), strict=True):
        numbers = [n for n in range(1, config.heads + 1) if uneven(replace(config, ranks=n)) is None]
        sizes = [rank_bytes(replace(config, ranks=n)) for n in numbers]
        unit, scale = ("GB", 1e9) if sum(sizes[0]) > 1e9 else ("MB", 1e6)
        shared, split = ([size[part] / scale for size in sizes] for part in (0, 1))
        labels = [str(n) for n in numbers]
        axis.bar(labels, shared, color=ORANGE.plot, label=tr("shared: whole on every rank"))
        axis.bar(labels, split, bottom=shared, color=BLUE.plot, label=tr("split: the rank's own part"))
        axis.plot(labels, [sum(sizes[0]) / scale / n for n in numbers], "k_", markersize=28, label=tr("an equal share"))
        axis.set(title=tr(name), xlabel=tr("ranks"), ylabel=tr("weights on each rank [{unit}]", unit=unit))
    # The marker of the line is wider than a usual key.
    (axes[-1] if len(models) > 1 else axes).legend(frameon=False, fontsize=8, handlelength=4)
    return figure


def slots_over_time(runs: Mapping[str, tuple[Mapping[int, int], Mapping[int, int]]], lengths: Sequence[int]) -> Any:
    """Plot which text has which slot in which step, with a panel for each run: its starts and ends by text [steps].

    A text writes a token in each step from its start on; gray are the steps in which a finished text keeps its slot.
    """
    last = max(max(end.values()) for _, end in runs.values())
    figure, axes = subplots(len(runs), 2.3, 4.9 * len(runs), sharey=True)
    for axis, (name, (start, end)) in zip(axes if len(runs) > 1 else [axes], runs.items(), strict=True):
        order = sorted(start, key=lambda text: (start[text], text))
        for text, slot in zip(order, rows_without_overlap((start[text], end[text]) for text in order), strict=True):
            written = start[text] + lengths[text]
            color = PLOT_COLORS[text % 5]
            axis.barh(slot, lengths[text], left=start[text], height=0.85, color=color, edgecolor="white")
            axis.barh(slot, end[text] - written, left=written, height=0.85, color="#d5d5d5", edgecolor="white")
            axis.text(start[text] + lengths[text] / 2, slot, str(text), color="white", ha="center", va="center")
        slots = 1 + max(rows_without_overlap((start[text], end[text]) for text in order))
        axis.set(title=tr(name), xlabel=tr("step"), xlim=(0, last + 0.2))
        axis.set_yticks(range(slots), [str(slot) for slot in range(slots)])
    (axes[0] if len(runs) > 1 else axes).set_ylabel(tr("slot"))
    return figure
