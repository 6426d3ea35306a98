"""Minimal pairs: two sentences that differ in one point, of which one is grammatical.

A model is right if it gives the grammatical sentence the higher probability: the sum of the log probabilities of all
tokens of the raw sentence, at the beginning of a document and without the end token. Normalization and segmentation
happen inside the model's tokenizer. A tie counts one half, so chance is 50 %. The method is that of BLiMP (Warstadt et
al. 2020, https://arxiv.org/abs/1912.00582) and, for Japanese, JBLiMP (Someya and Oseki 2023,
https://aclanthology.org/2023.findings-eacl.117).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.documents import json_objects, read_batches
from course_lib.errors import CourseError
from course_lib.evaluation import jblimp
from course_lib.evaluation.bootstrap import mean_interval
from course_lib.evaluation.scoring import ScoringModel
from course_lib.evaluation.windows import WindowSettings, score
from course_lib.language.columns import aligned
from course_lib.language.words import tr, tr_noop

ALL = tr_noop("all")


@dataclass(frozen=True)
class Pair:
    """A grammatical and an ungrammatical sentence, and the phenomenon that they differ in."""

    phenomenon: str
    good: str
    bad: str


@dataclass(frozen=True)
class Accuracy:
    """Share of pairs in which a model prefers the grammatical sentence, with a bootstrap interval of 95 %."""

    pairs: int
    accuracy: float
    low: float
    high: float


def read_pairs(path: Path) -> list[Pair]:
    """Return the pairs of a JSONL file: one object with "phenomenon", "good" and "bad" per line, and any other keys.

    JBLiMP's file, or the folder of its repository, is read with the keys that it has.
    """
    if path.is_dir():
        path = path / jblimp.FILE
        if not path.is_file():
            raise CourseError(
                f"{path}: not found; allowed: a JSONL file of minimal pairs, or a clone of {jblimp.SOURCE}"
            )
    pairs: list[Pair] = []
    names = ("good", "bad")
    for batch in read_batches(path):
        if not pairs and jblimp.KEYS[0].encode() in batch.lines[0]:
            names = jblimp.KEYS
        good, bad = names
        for number, row in json_objects(batch, "phenomenon", *names):
            pair = Pair(row["phenomenon"], row[good], row[bad])
            if not all(text.strip() for text in vars(pair).values()) or pair.good == pair.bad:
                raise CourseError(f'{path}, line {number}: expected two different texts "{good}" and "{bad}"')
            pairs.append(pair)
    if not pairs:
        raise CourseError(f"{path}: no pair in it")
    return pairs


def judge(
    model: ScoringModel, pairs: Sequence[Pair], settings: WindowSettings | None = None, bar: Any = None
) -> list[float]:
    """Return 1 for each pair of which the model prefers the grammatical sentence, 0.5 for a tie, otherwise 0."""
    sequences = [model.tokens(text, end=False) for pair in pairs for text in (pair.good, pair.bad)]
    totals = [scores.total for scores in score(model, sequences, settings, bar, len(pairs))]
    # Rounded, because the scores of equal texts can differ in the last digits between batches.
    margins = [round(good - bad, 6) for good, bad in zip(totals[::2], totals[1::2], strict=True)]
    return [0.5 + 0.5 * float(np.sign(margin)) for margin in margins]


def accuracies(pairs: Sequence[Pair], right: Sequence[float]) -> dict[str, Accuracy]:
    """Return the accuracy for each phenomenon, in the order of the pairs, and for "all"; `right` comes from `judge`."""
    groups: dict[str, list[float]] = {}
    for pair, value in zip(pairs, right, strict=True):
        groups.setdefault(pair.phenomenon, []).append(value)
    return {name: _accuracy(values) for name, values in (groups | {ALL: list(right)}).items()}


def _accuracy(values: Sequence[float]) -> Accuracy:
    return Accuracy(len(values), *mean_interval(values))


def table(results: Mapping[str, Mapping[str, Accuracy]]) -> str:
    """Return {model name: {phenomenon: accuracy}} as a text table [%]: a line per phenomenon, a column per model.

    Pairs of JBLiMP have a column for each model of its authors, too.
    """
    first = next(iter(results.values()))
    published = jblimp.published({phenomenon: known.pairs for phenomenon, known in first.items()})
    rows = [[tr("phenomenon"), tr("pairs"), *results, *map(tr, published)]]
    for phenomenon, known in first.items():
        name = tr(ALL) if phenomenon == ALL else phenomenon
        measured = [_shown(accuracies[phenomenon]) for accuracies in results.values()]
        theirs = [f"{accuracies[phenomenon]:.2f}" for accuracies in published.values()]
        rows.append([name, str(known.pairs), *measured, *theirs])
    lines = aligned(rows, right=range(1, len(rows[0])))
    lines.append(tr("accuracy [%], interval of 95 % by bootstrap; chance: 50 %"))
    if published:
        lines.append(tr(jblimp.NOTE, models=", ".join(results)))
    return "\n".join(lines)


def _shown(value: Accuracy) -> str:
    return f"{value.accuracy:.1%} ({value.low:.0%}–{value.high:.0%})".replace("%", "")
