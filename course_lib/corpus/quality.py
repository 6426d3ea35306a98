"""A learned quality score: logistic regression over hashed character n-grams, wanted against unwanted text.

The idea is that of the filter in "Language Models are Few-Shot Learners" (Brown et al. 2020, appendix A,
https://arxiv.org/abs/2005.14165): a linear classifier separates curated text from raw web text. The score says how
much a text resembles the wanted texts in its characters. It learns their style, too, and does not check facts.

scikit-learn trains the classifier. A score needs only its weights: the processes that filter a corpus do not import
scikit-learn, which takes each of them 170 MB.
"""

import zipfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from course_lib.corpus.dedup import folded, gram_hashes
from course_lib.errors import CourseError
from course_lib.files import atomic_write, require_file

# Lengths of the n-grams [characters], and bits of their hashes: a classifier has 2 ** BITS weights.
SIZES = (1, 2, 3)
BITS = 16
# Inverse weight of the L2 penalty. From 10 to 1000, the bundled web texts have nearly the same order.
C = 100.0
# Classifiers that score the texts that they were not trained on.
FOLDS = 5
# Buckets of the n-grams in a text, and their values, [n-grams] each.
Features = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


class Quality(NamedTuple):
    """A trained classifier."""

    weights: npt.NDArray[np.float32]  # [2 ** BITS]
    bias: float

    def score(self, text: str) -> float:
        """Return the log odds [nats] that a text is one of the wanted texts: above 0 it is more like those."""
        buckets, values = features(text)
        return float(self.weights[buckets] @ values) + self.bias


def features(text: str) -> Features:
    """Return the buckets of a text's n-grams and the square roots of their counts, scaled to unit length."""
    codes = folded(text)
    if not len(codes):
        return np.empty(0, dtype=np.int64), np.empty(0)
    hashes = np.concatenate([gram_hashes(codes, size) for size in SIZES])
    buckets, counts = np.unique(hashes >> np.uint64(64 - BITS), return_counts=True)
    return buckets.astype(np.int64), np.sqrt(counts / counts.sum())


def train_quality(wanted: Sequence[str], unwanted: Sequence[str]) -> Quality:
    """Fit a logistic regression with scikit-learn; both classes have equal weight. It depends only on the texts.

    Raises CourseError if one of the two classes has no text.
    """
    if not wanted or not unwanted:
        raise CourseError("quality: a classifier needs documents of both classes; one of them has none")
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    # (buckets, values) of each text.
    rows = [features(text) for text in (*wanted, *unwanted)]
    buckets, values = (np.concatenate(column) for column in zip(*rows, strict=True))
    # The features of a text are those from one of these positions to the next one.
    borders = np.cumsum([0, *(len(row[0]) for row in rows)])
    matrix = csr_matrix((values, buckets, borders), shape=(len(rows), 2**BITS))
    labels = [1] * len(wanted) + [0] * len(unwanted)
    model = LogisticRegression(C=C, class_weight="balanced", max_iter=1000).fit(matrix, labels)
    return Quality(model.coef_[0].astype(np.float32), float(model.intercept_[0]))


def cross_fitted(wanted: Sequence[str], unwanted: Sequence[str]) -> list[float]:
    """Return the score of each unwanted text by a classifier that was trained without it."""
    scores = [0.0] * len(unwanted)
    for fold in range(min(FOLDS, len(unwanted))):
        others = [text for index, text in enumerate(unwanted) if index % FOLDS != fold]
        quality = train_quality(wanted, others)
        scores[fold::FOLDS] = map(quality.score, unwanted[fold::FOLDS])
    return scores


def save_quality(quality: Quality, target: Path) -> None:
    """Write a classifier as an .npz file, 234 KB from the bundled texts."""
    with atomic_write(target) as file:
        np.savez_compressed(file, weights=quality.weights, bias=np.float64(quality.bias))


def load_quality(path: Path) -> Quality:
    """Read a classifier, once while its file does not change. Raises CourseError if the file is not one."""
    return _load(path, require_file(path).stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _load(path: Path, _changed: int) -> Quality:
    try:
        with np.load(path, allow_pickle=False) as stored:
            quality = Quality(stored["weights"], float(stored["bias"]))
    except (ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile) as error:
        raise CourseError(f"{path}: is not a quality classifier; train one by `course corpus quality`") from error
    if quality.weights.shape != (2**BITS,):
        raise CourseError(f"{path}: has weights of shape {quality.weights.shape}; {(2**BITS,)} is needed")
    return quality
