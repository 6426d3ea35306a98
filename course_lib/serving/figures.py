"""Figures for chapter 7."""

from collections.abc import Sequence
from typing import Any

from course_lib.figures import COLOURS, subplots
from course_lib.serving.latency import Speed


def latency(speeds: Sequence[Speed]) -> Any:
    """Plot each engine's tokens per second and its speed relative to the first engine, with a panel per batch size."""
    batches = list(dict.fromkeys(speed.batch for speed in speeds))
    names = list(dict.fromkeys(speed.engine for speed in speeds))
    figure, axes = subplots(len(batches), 1.1 + 0.4 * len(names), 9.5, sharey=True)
    axes = list(axes) if len(batches) > 1 else [axes]
    for axis, batch in zip(axes, batches, strict=True):
        rows = [speed for speed in speeds if speed.batch == batch]
        rates = [row.tokens_per_second for row in rows]
        bars = axis.barh([row.engine for row in rows], rates, color=COLOURS[: len(rows)])
        axis.bar_label(bars, [f"{rate:,.0f}   {rate / rates[0]:.1f} ×" for rate in rates], padding=3, fontsize=8)
        axis.margins(x=0.35)
        axis.locator_params(axis="x", nbins=4)
        axis.set(title=f"batch {batch}", xlabel="tokens per second")
    axes[0].invert_yaxis()
    return figure
