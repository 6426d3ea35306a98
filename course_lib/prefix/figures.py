"""Figures for chapter 6."""

from collections.abc import Mapping, Sequence
from typing import Any

from course_lib.figures import AFTER, COLOURS, subplots
from course_lib.prefix.single_process_trainer import Case


def visibility(tokens: Sequence[str], length: int) -> Any:
    """Draw the attention mask for tokens after a prefix of `length` positions, with one row per token."""
    from matplotlib.patches import Rectangle

    names = [*(f"prefix {position}" for position in range(1, length + 1)), *tokens]
    figure, axis = subplots(height=1.3 + 0.32 * len(tokens), width=2.2 + 0.32 * len(names))
    for row in range(len(tokens)):
        for column in range(length + row + 1):
            colour = COLOURS[1] if column < length else AFTER
            axis.add_patch(Rectangle((column - 0.45, row - 0.45), 0.9, 0.9, facecolor=colour))
    axis.axvline(length - 0.5, color="black", linewidth=1)
    axis.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(tokens) - 0.5, -0.5), aspect="equal")
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    axis.set_yticks(range(len(tokens)), tokens, fontsize=8)
    axis.set(title="trained │ the text: frozen model, causal", ylabel="a token sees …")
    return figure


def losses(logs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Any:
    """Plot each task's training loss as a line and its held-out loss as points [nats per token]."""
    figure, axis = subplots(height=3.0)
    for (task, entries), colour in zip(logs.items(), COLOURS, strict=False):
        for kind, name, style in (("train", "training", "-"), ("eval", "held out", "o")):
            points = [(entry["step"], entry["loss"]) for entry in entries if entry["kind"] == kind]
            axis.plot(*zip(*points, strict=True), style, color=colour, label=f"{task}, {name}")
    axis.set(xlabel="step", ylabel="loss [nats per token]")
    axis.legend(frameon=False)
    return figure


def length_against_loss(cases: Mapping[int, Case]) -> Any:
    """Plot the held-out loss [nats per token] against the prefix length [positions]."""
    figure, axis = subplots(height=3.0)
    axis.plot(list(cases), [case.held_out for case in cases.values()], color=AFTER, marker="o")
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(cases), [str(length) for length in cases])
    axis.set(xlabel="positions of the prefix", ylabel="held-out loss [nats per token]")
    return figure


def methods(cases: Mapping[str, Case]) -> Any:
    """Plot bars for trained parameters, held-out loss and computed memory by part [MB], for each training method."""
    figure, axes = subplots(3, height=1.3 + 0.5 * len(cases), width=10.0, sharey=True)
    rows = range(len(cases))
    trained = [case.trained for case in cases.values()]
    held_out = [case.held_out or 0.0 for case in cases.values()]
    axes[0].barh(rows, trained, color=AFTER)
    axes[0].set(xscale="log", xlim=(min(trained) / 4, max(trained) * 30), xlabel="trained parameters")
    axes[0].set_yticks(rows, list(cases))
    axes[1].barh(rows, held_out, color=AFTER)
    axes[1].set(xlim=(0, 1.25 * max(held_out)), xlabel="held-out loss [nats per token]")
    left = [0.0] * len(cases)
    for part, colour in zip(next(iter(cases.values())).memory, COLOURS * 2, strict=False):
        sizes = [case.memory[part] / 1e6 for case in cases.values()]
        axes[2].barh(rows, sizes, left=left, color=colour, label=part)
        left = [begin + size for begin, size in zip(left, sizes, strict=True)]
    axes[2].set(xlabel="memory [MB]")
    figure.legend(*axes[2].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    axes[0].invert_yaxis()
    for row in rows:
        axes[0].text(trained[row], row, f" {trained[row]:,.0f}", va="center", fontsize=8)
        axes[1].text(held_out[row], row, f" {held_out[row]:.2f}", va="center", fontsize=8)
    return figure
