"""MinHash banding by itself: which pairs of texts become candidates, in theory and counted.

Source: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, chapter 3, http://www.mmds.org.
"""

from collections.abc import Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from course_lib.corpus.dedup import folded, gram_hashes

Flags = npt.NDArray[np.bool_]


def probability(similarity: npt.ArrayLike, bands: int, rows: int) -> npt.NDArray[np.float64]:
    """Return the probability 1 - (1 - s^rows)^bands that two texts of Jaccard similarity s agree in a whole band."""
    shares = np.asarray(similarity, dtype=np.float64)
    return np.asarray(1 - (1 - shares**rows) ** bands)


def share_a_band(one: npt.ArrayLike, other: npt.ArrayLike, bands: int, rows: int) -> Flags:
    """Return which pairs of signatures, each [pairs, hashes], agree in all rows of at least one band, [pairs]."""
    agree = np.asarray(one)[:, : bands * rows] == np.asarray(other)[:, : bands * rows]
    whole: Flags = agree.reshape(len(agree), bands, rows).all(2)
    return np.asarray(whole.any(1))


def gram_set(text: str, ngram: int) -> set[int]:
    """Return the hashes of a text's character n-grams, folded as in deduplication."""
    return set(gram_hashes(folded(text), ngram).tolist())


def jaccard(one: Set[Any], other: Set[Any]) -> float:
    """Return the Jaccard similarity (0 to 1) of two sets that are not both empty."""
    return len(one & other) / len(one | other)


def spliced(texts: Sequence[str], copies: int, least: int = 150) -> list[tuple[str, str]]:
    """Return pairs of each text and a copy whose end, a share evenly spread over 0 to 1, is another text's."""
    long = [text for text in texts if len(text) >= least]
    shares = (np.arange(copies) + 0.5) / copies
    return [
        (text, text[: int(len(text) * share)] + long[number - 1][-int(len(text) * (1 - share)) - 1 :])
        for number, text in enumerate(long)
        for share in shares
    ]
