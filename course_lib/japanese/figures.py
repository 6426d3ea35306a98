"""Figures for chapter 2."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any

from course_lib.japanese.normalize import normalize
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.plot import BLUE, subplots

KINDS = (
    (tr_noop("full-width letters and signs"), "！", "～"),
    (tr_noop("half-width katakana"), "｡", "ﾟ"),
    (tr_noop("full-width space"), "　", "　"),
    (tr_noop("wave dashes"), "〜", "〜"),
)


def normalization_changes(texts: Iterable[str]) -> Any:
    """Draw a bar chart of the eight kinds of characters that normalization replaced or removed most often."""
    texts = list(texts)
    lost = ((Counter(text) - Counter(normalize(text))).elements() for text in texts)
    counts = Counter(map(_kind, chain.from_iterable(lost))).most_common(8)[::-1]
    figure, axis = subplots()
    bars = axis.barh([kind for kind, _ in counts], [number for _, number in counts], color=BLUE.plot)
    axis.bar_label(bars, padding=3)
    axis.set(
        xlabel=tr("characters replaced or removed"),
        title=tr(
            "What normalization changed in {number:,} characters",
            number=sum(len(text.replace("\n", "")) for text in texts),
        ),
    )
    return figure


def _kind(char: str) -> str:
    for name, first, last in KINDS:
        if first <= char <= last:
            return tr(name)
    if char == " ":
        return tr("space beside Japanese")
    if char in "ー-−–—―~～":
        return tr("dashes and ー runs")
    return unicodedata.name(char, tr("control character")).split(" ")[0].lower()
