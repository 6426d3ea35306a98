"""Figures for chapter 4: losses, attention, decoding, the ladder, optimizers, memory and ZeRO shards."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.plot import BLUE, GREY, ORANGE, PLOT_COLORS, RED, subplots

# Ticks of a logarithmic axis [nats].
LOSSES = (0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8)


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
    # On a linear axis, the fall of the first steps hides all that follows, and how near the end is to the source.
    axis.set_yscale("log")
    lowest = min([entry["loss"] for entry in log] + [source or math.inf])
    ticks = [loss for loss in LOSSES if loss > 0.4 * lowest]
    axis.set_yticks(ticks, [f"{loss:g}" for loss in ticks])
    axis.minorticks_off()
    if source:
        axis.set_ylim(bottom=0.8 * lowest)
    return figure


def faults(rows: Sequence[Mapping[str, Any]], source: float, vocab_size: int, seed: int = 0) -> Any:
    """Plot the runs of faults.csv with one seed: a panel for each letter, and in grey the sound run's held-out loss.

    Lines are at the losses of guessing and of the source [nats per token].
    """
    figure, axes = subplots(3, height=5.4, rows=2, sharex=True, sharey=True)
    runs = dict[str, list[tuple[float, ...]]]()
    for row in rows:
        if row["seed"] == seed:
            runs.setdefault(row["run"], []).append((row["step"], row["train"], row["held_out"]))
    steps, _, sound = zip(*runs.pop("sound"), strict=True)
    for axis, (letter, run) in zip(axes.flat, runs.items(), strict=True):
        axis.plot(steps, sound, color=GREY.plot, linewidth=4, alpha=0.4, label=tr("held out, without a fault"))
        _, train, held_out = zip(*run, strict=True)
        axis.plot(steps, train, color=BLUE.plot, label=tr("training"))
        axis.plot(steps, held_out, color=ORANGE.plot, label=tr("held out"))
        axis.axhline(math.log(vocab_size), color=GREY.plot, linestyle=":", label=tr("guessing: ln V"))
        axis.axhline(source, color=GREY.plot, linestyle="-.", label=tr("the source"))
        axis.set_title(letter)
        axis.set_yscale("log")
        axis.set_yticks(ticks := (0.01, 0.1, 1, 10), [f"{loss:g}" for loss in ticks])
        axis.minorticks_off()
    for axis in axes[:, 0]:
        axis.set(ylabel=tr("loss [nats per token]"))
    for axis in axes[1]:
        axis.set(xlabel=tr("step"))
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), frameon=False, fontsize=9, loc="outside lower center", ncols=5
    )
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


def repetition_and_surprise(
    points: Mapping[tuple[float, float], tuple[float, float]], authors: tuple[float, float]
) -> Any:
    """Plot repetition [%] and surprise [bits per token] over the temperature: a line for each top-p, one for authors.

    `points` has both, as shares and bits, by temperature and top-p.
    """
    figure, axes = subplots(2, height=3.6)
    labels = tr("repeated windows of four tokens [%]"), tr("surprise [bits per token]")
    for number, (axis, label, factor) in enumerate(zip(axes, labels, (100, 1), strict=True)):
        for p, colour, marker in zip(sorted({p for _, p in points}, reverse=True), PLOT_COLORS, "os^v", strict=False):
            known = {t: factor * pair[number] for (t, each), pair in points.items() if each == p}
            name = tr("top-p {p:g}", p=p) if p < 1 else tr("all entries")
            axis.plot(list(known), list(known.values()), color=colour, marker=marker, label=name)
        axis.axhline(factor * authors[number], color=GREY.plot, linestyle="--", linewidth=1, label=tr("other authors"))
        axis.set(xlabel=tr("temperature"), title=label)
        axis.set_ylim(bottom=0)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, fontsize=9, loc="outside lower center", ncols=len(names))
    return figure


def rotations(speeds: Sequence[float], positions: int = 100) -> Any:
    """Plot the cosine of the angle of each point of a rotary embedding by position; speeds [radians per token]."""
    figure, axis = subplots(height=3.0)
    steps = np.arange(0, positions, 0.1)
    for speed, colour in zip(speeds, PLOT_COLORS, strict=False):
        axis.plot(steps, np.cos(speed * steps), color=colour, label=tr("{speed:.3f} radians a token", speed=speed))
    axis.set(xlabel=tr("position"), ylabel=tr("cosine of the angle"))
    figure.legend(frameon=False, fontsize=9, loc="outside right center")
    return figure


def kinds(losses: Mapping[str, Sequence[float]]) -> Any:
    """Plot the losses of each kind of model [nats per token]: a dot for each seed, a line at their mean."""
    figure, axis = subplots(height=0.9 + 0.32 * len(losses))
    for row, known in enumerate(losses.values()):
        axis.plot(known, [row] * len(known), "o", color=BLUE.plot, markersize=6, alpha=0.7)
        axis.plot(np.mean(known), row, "|", color=ORANGE.plot, markersize=16, markeredgewidth=2)
    axis.set_yticks(range(len(losses)), [tr(name) for name in losses])
    axis.set(xlabel=tr("loss [nats per token]"), ylim=(len(losses) - 0.5, -0.5))
    axis.grid(axis="y", visible=False)
    return figure
