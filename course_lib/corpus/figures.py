"""Figures for chapter 1."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from course_lib.corpus.banding import probability
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.plot import BLUE, GREY, ORANGE, PLOT_COLORS, subplots

PLAIN_TEXT = tr_noop("plain text")
# What each count of an extraction contains.
LABELS = {
    "comments": tr_noop("comments"),
    "formulas": tr_noop("formulas"),
    "references": tr_noop("references"),
    "code": tr_noop("code"),
    "galleries": tr_noop("galleries"),
    "templates": tr_noop("templates"),
    "tables": tr_noop("tables"),
    "links": tr_noop("links: brackets and targets"),
    "markup": tr_noop("tags, bold marks, character references"),
    "sections and layout": tr_noop("left-out sections, line layout"),
}


def markup_shares(counts: Mapping[str, int], plain_text: int) -> Any:
    """Draw what the articles of a dump consist of: characters removed by kind (CorpusReport.counts), and plain text."""
    kinds = {name.removeprefix("characters of "): number for name, number in counts.items()}
    kinds = {PLAIN_TEXT: plain_text} | {LABELS.get(kind, kind): number for kind, number in kinds.items()}
    names = sorted(kinds, key=lambda name: kinds[name])
    figure, axis = subplots()
    colors = [BLUE.plot if name == PLAIN_TEXT else GREY.plot for name in names]
    bars = axis.barh([tr(name) for name in names], [kinds[name] / 1000 for name in names], color=colors)
    axis.bar_label(bars, fmt="%.1f", padding=3)
    axis.set(
        xlabel=tr("characters [thousands]"),
        title=tr("What the articles of the dump consist of: {number:,} characters", number=sum(kinds.values())),
    )
    return figure


def measure_histogram(values: Mapping[str, Sequence[float]], limit: float, name: str) -> Any:
    """Draw a stacked histogram of the values (0 to 1) of each group of documents, with the filter's limit."""
    figure, axis = subplots()
    bins = np.linspace(0, 1, 41)
    labels = [tr(group) for group in values]
    axis.hist(list(values.values()), bins=bins, stacked=True, label=labels, color=PLOT_COLORS[: len(values)])
    axis.axvline(limit, color="black", linestyle="--", label=tr("limit {limit}", limit=limit))
    axis.set(xlabel=tr(name), ylabel=tr("documents"))
    axis.legend(frameon=False)
    return figure


def banding_curve(similarity: npt.ArrayLike, candidates: npt.ArrayLike, bands: int, rows: int, limit: float) -> Any:
    """Draw the share of pairs that become candidates over their similarity, computed and measured.

    `candidates` says whether each pair shares a band, [pairs]. Points are shares in intervals of 0.05, with two
    standard errors. Two other ways to cut the same number of hashes are drawn in gray.
    """
    pairs, shared = np.asarray(similarity), np.asarray(candidates)
    figure, axis = subplots()
    x = np.linspace(0, 1, 201)
    hashes = bands * rows
    for other in (1, 12):
        axis.plot(x, probability(x, hashes // other, other), color=GREY.plot, linewidth=1)
        at = 0.06 if other == 1 else 0.93
        axis.annotate(f"{hashes // other} × {other}", (at, 0.5), color=GREY.plot, ha="left" if other == 1 else "right")
    computed = tr("{bands} bands of {rows} rows, computed", bands=bands, rows=rows)
    axis.plot(x, probability(x, bands, rows), color=BLUE.plot, label=computed)
    edges = np.linspace(0, 1, 21)
    group = np.clip(np.digitize(pairs, edges) - 1, 0, 19)
    counts = np.bincount(group, minlength=20)
    shares = np.bincount(group, shared, minlength=20) / np.maximum(counts, 1)
    errors = 2 * np.sqrt(shares * (1 - shares) / np.maximum(counts, 1))
    filled = counts > 0
    middles = np.bincount(group, pairs, minlength=20) / np.maximum(counts, 1)
    measured = tr("measured on {number:,} pairs", number=len(pairs))
    axis.errorbar(
        middles[filled], shares[filled], errors[filled], fmt="o", color=ORANGE.plot, markersize=4, label=measured
    )
    axis.axvline(limit, color="black", linestyle="--", linewidth=1, label=tr("repeats from {limit}", limit=limit))
    axis.set(xlabel=tr("Jaccard similarity of the pair"), ylabel=tr("share of pairs compared"), xlim=(0, 1))
    # Between the curves, so that it covers none of them.
    axis.legend(frameon=False, loc="center", bbox_to_anchor=(0.56, 0.4))
    return figure
