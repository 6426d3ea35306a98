"""Figures for chapter 1."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.corpus.report import Report
from course_lib.figures import AFTER, BEFORE, COLOURS, subplots


def markup_shares(counts: Mapping[str, int], kept: int) -> Any:
    """Draw a bar chart of what the articles in a dump consist of [thousands of characters].

    `counts` maps each kind of markup to the number of characters removed (Report.counts); `kept` is the number of
    plain-text characters.
    """
    kinds = {"plain text": kept} | {name.removeprefix("characters of "): n for name, n in counts.items()}
    names = sorted(kinds, key=lambda name: kinds[name])
    figure, axis = subplots()
    axis.barh(names, [kinds[n] / 1000 for n in names], color=[AFTER if n == "plain text" else BEFORE for n in names])
    axis.set(xlabel="characters [thousands]", title="What the articles of the dump consist of")
    return figure


def length_distributions(before: Mapping[str, Sequence[int]], after: Mapping[str, Sequence[int]]) -> Any:
    """Draw histograms of document lengths [characters] before and after cleaning: one panel per corpus, log x-axis.

    Both arguments map a corpus name to the lengths of its documents.
    """
    figure, axes = subplots(len(before))
    for axis, name in zip(np.atleast_1d(axes), before, strict=True):
        highest = max(*before[name], *after[name])
        bins = np.geomspace(10, highest + 1, 30)
        axis.hist([max(10, n) for n in before[name]], bins=bins, color=BEFORE, alpha=0.6, label="before")
        axis.hist([max(10, n) for n in after[name]], bins=bins, color=AFTER, alpha=0.75, label="after")
        axis.set(xscale="log", xlabel="characters per document", title=name)
        axis.legend(frameon=False)
    np.atleast_1d(axes)[0].set_ylabel("documents")
    return figure


def removed_documents(report: Report) -> Any:
    """Draw a bar chart of the removed documents by reason."""
    removed = {reason: taken.count for reason, taken in report.removed.items() if taken.count}
    names = sorted(removed, key=lambda name: removed[name])
    figure, axis = subplots()
    bars = axis.barh(names, [removed[name] for name in names], color=COLOURS[3])
    axis.bar_label(bars, padding=3)
    axis.set(xlabel="documents", title=f"Removed: {sum(removed.values())} of {report.documents_in} web documents")
    return figure


def measure_histogram(values: Mapping[str, Sequence[float]], limit: float, name: str) -> Any:
    """Draw a stacked histogram of the measure called `name`, with the filter's limit as a dashed line.

    `values` maps each group of documents to its documents' values, from 0 to 1.
    """
    figure, axis = subplots()
    bins = np.linspace(0, 1, 41)
    axis.hist(list(values.values()), bins=bins, stacked=True, label=list(values), color=COLOURS[: len(values)])
    axis.axvline(limit, color="black", linestyle="--", label=f"limit {limit}")
    axis.set(xlabel=name, ylabel="documents")
    axis.legend(frameon=False)
    return figure
