"""Comparison of segmenters with text segmented by hand: precision, recall and F1 over words, and speed.

A gold file has one sentence per line and a single space between words. A word counts as found if it begins and ends at
the same characters in both segmentations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt

from course_lib.errors import CourseError
from course_lib.files import require_file
from course_lib.japanese import jumanpp, mecab
from course_lib.japanese.normalize import normalize
from course_lib.language.columns import padded
from course_lib.language.words import tr

# Lines to their words, for texts without spaces.
Segmenter = Callable[[Sequence[str]], list[list[str]]]
# Words in both segmentations, in the gold file and in the segmenter's output, [sentences, 3].
Counts = npt.NDArray[np.int64]
# Samples for the bootstrap interval, and the seed of its random generator.
SAMPLES, SEED = 2000, 0
# Speed is measured over at least this time [s].
LEAST_SECONDS = 0.3


@dataclass(frozen=True)
class Score:
    """How well a segmenter agrees with a gold file. Shares are from 0 to 1."""

    sentences: int
    precision: float  # share of the segmenter's words that are right
    recall: float  # share of the gold words that were found
    f1: float  # harmonic mean of both
    low: float  # 95 % bootstrap interval of F1 over sentences
    high: float
    exact: float  # share of the sentences without an error
    speed: float  # characters per second, on one core


def read_gold(path: Path, normalized: bool = True) -> list[list[str]]:
    """Return the words of each sentence in a gold file; with `normalized`, sentences have to be normalized."""
    sentences = []
    for number, line in enumerate(require_file(path).read_bytes().splitlines(), 1):
        try:
            words = line.decode().split(" ")
        except UnicodeDecodeError as error:
            raise CourseError(f"{path}:{number}: not UTF-8 (byte {error.start + 1}); allowed: UTF-8 text") from None
        if words == [""]:
            continue
        if not all(words):
            raise CourseError(f"{path}:{number}: an empty word; allowed: words separated by single spaces")
        if normalized and normalize("".join(words)) != "".join(words):
            raise CourseError(
                f"{path}:{number}: not normalized; write the sentence as `normalize` does, or choose --raw"
            )
        sentences.append(words)
    if not sentences:
        raise CourseError(f"{path}: no sentences; allowed: one sentence per line, words separated by single spaces")
    return sentences


def segmenters() -> dict[str, Segmenter]:
    """Return the segmenters on this machine by name; `characters`, the baseline, makes each character a word."""
    found: dict[str, Segmenter] = {"mecab": lambda lines: list(map(mecab.words, lines))}
    if jumanpp.find_binary():
        program = jumanpp.JumanppSegmenter.from_path()
        found["jumanpp"] = lambda lines: program.words(lines)[0]
    return found | {"characters": lambda lines: list(map(list, lines))}


def spans(words: Sequence[str]) -> set[tuple[int, int]]:
    """Return the start and end of each word [characters]."""
    return set(pairwise(accumulate(map(len, words), initial=0)))


def count_words(gold: Sequence[Sequence[str]], guesses: Sequence[Sequence[str]]) -> Counts:
    """Return, for each sentence, the words in both segmentations, in the gold file and in the guess, [sentences, 3]."""
    pairs = [(spans(right), spans(guess)) for right, guess in zip(gold, guesses, strict=True)]
    return np.array([(len(right & made), len(right), len(made)) for right, made in pairs])


def f1_interval(counts: Counts) -> tuple[float, float, float]:
    """Return F1 and its 95 % bootstrap interval over sentences, for counts as from `count_words`.

    Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13: the percentile interval.
    """
    rows = np.random.default_rng(SEED).integers(len(counts), size=(SAMPLES, len(counts)))
    low, high = np.percentile(_f1(counts[rows].sum(1)), [2.5, 97.5])
    return float(_f1(counts.sum(0))), float(low), float(high)


def score(gold: Sequence[Sequence[str]], segmenter: Segmenter) -> Score:
    """Compare a segmenter with sentences segmented by hand, and measure its speed on them."""
    lines = ["".join(words) for words in gold]
    passes, started = 0, perf_counter()
    while passes == 0 or perf_counter() - started < LEAST_SECONDS:
        guesses = segmenter(lines)
        passes += 1
    speed = passes * sum(map(len, lines)) / (perf_counter() - started)
    counts = count_words(gold, guesses)
    shared, right, made = counts.sum(0)
    exact = float(np.mean((counts[:, 0] == counts[:, 1]) & (counts[:, 0] == counts[:, 2])))
    return Score(len(gold), shared / made, shared / right, *f1_interval(counts), exact, speed)


def _f1(counts: Counts) -> npt.NDArray[np.float64]:
    """Return F1 for the last axis of words in both, in the gold file and in the output."""
    return np.asarray(2 * counts[..., 0] / (counts[..., 1] + counts[..., 2]))


def table(scores: Mapping[str, Score]) -> str:
    """Return scores by segmenter as a table for the terminal."""
    head = padded(tr("segmenter"), "<12") + padded(tr("precision"), ">10") + padded(tr("recall"), ">8")
    head += padded(tr("F1"), ">8") + "  " + padded(tr("95 % interval"), "<14") + padded(tr("exact"), ">8")
    lines = [head + "   " + tr("speed")]
    for name, s in scores.items():
        interval = tr("{low:.3f} to {high:.3f}", low=s.low, high=s.high)
        speed = tr("{speed:,.0f} characters/s", speed=s.speed)
        figures = f"{s.precision:>10.3f}{s.recall:>8.3f}{s.f1:>8.3f}  {interval}{s.exact:>8.1%}   {speed}"
        lines.append(padded(name, "<12") + figures)
    return "\n".join(lines)
