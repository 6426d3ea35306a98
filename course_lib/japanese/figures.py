"""Figures for chapter 2."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from course_lib.figures import AFTER, COLOURS, subplots
from course_lib.japanese.normalize import normalize

KINDS = (
    ("full-width ASCII", "！", "～"),
    ("half-width kana", "｡", "ﾟ"),
    ("full-width space", "　", "　"),
    ("wave dashes", "〜", "〜"),
)


def changed_characters(texts: Iterable[str]) -> Counter[str]:
    """Count the characters that normalization replaced or removed in the texts, by kind of character."""
    taken: Counter[str] = Counter()
    for text in texts:
        lost = Counter(text) - Counter(normalize(text))
        for char, number in lost.items():
            taken[_kind(char)] += number
    return taken


def normalization_changes(texts: Iterable[str]) -> Any:
    """Draw a bar chart of the eight kinds of characters that normalization replaced or removed most often."""
    counts = changed_characters(texts).most_common(8)[::-1]
    figure, axis = subplots()
    bars = axis.barh([kind for kind, _ in counts], [number for _, number in counts], color=AFTER)
    axis.bar_label(bars, padding=3)
    axis.set(xlabel="characters replaced or removed", title="What normalization changed")
    return figure


def sentence_lengths(sentences: Sequence[str]) -> Any:
    """Draw a histogram of sentence lengths [characters]; the last bin holds all sentences of 150 or more characters."""
    figure, axis = subplots(height=3.0)
    axis.hist([min(len(sentence), 150) for sentence in sentences], bins=np.arange(0, 155, 5), color=AFTER)
    axis.set(xlabel="characters per sentence (150 = 150 or more)", ylabel="sentences")
    return figure


def segmentations(text: str, found: dict[str, Sequence[str]]) -> Any:
    """Draw segmentations of the same text: one row of boxes per segmenter, one box per word.

    `text` has no spaces; `found` maps the name of each segmenter to the words it found.
    """
    figure, axis = subplots(height=0.3 + 0.6 * len(found), width=max(4.0, 0.62 * len(text) + 1.6))
    for row, words in enumerate(found.values()):
        at = 0
        for number, word in enumerate(words):
            style = {"color": COLOURS[row % len(COLOURS)], "alpha": 0.85 if number % 2 else 0.55}
            axis.barh(-row, len(word) - 0.08, left=at + 0.04, height=0.62, **style)
            axis.text(at + len(word) / 2, -row, word, ha="center", va="center", fontsize=13)
            at += len(word)
    axis.set(yticks=[-row for row in range(len(found))], yticklabels=list(found), xticks=[], xlim=(0, len(text)))
    axis.spines[:].set_visible(False)
    return figure


def _kind(char: str) -> str:
    for name, first, last in KINDS:
        if first <= char <= last:
            return name
    if char == " ":
        return "space beside Japanese"
    if char in "ー-−–—―~～":
        return "dashes and ー runs"
    return unicodedata.name(char, "control character").split(" ")[0].lower()
