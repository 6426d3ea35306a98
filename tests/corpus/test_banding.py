"""MinHash banding by itself: the probability, the candidates and the pairs to measure them on."""

import numpy as np
import pytest
from course_lib.corpus.banding import gram_set, jaccard, probability, share_a_band, spliced
from course_lib.corpus.config import DedupConfig
from course_lib.corpus.dedup import signatures


def similar(one: str, other: str, ngram: int) -> float:
    return jaccard(gram_set(one, ngram), gram_set(other, ngram))


def test_measured_and_computed_candidates_agree_on_real_signatures() -> None:
    rng = np.random.default_rng(1)
    texts = ["".join(map(chr, rng.integers(0x3042, 0x3092, size=300))) for _ in range(60)]
    pairs = spliced(texts, 10)
    similarity = np.array([similar(one, other, 4) for one, other in pairs])
    one, other = (signatures(side, DedupConfig()) for side in zip(*pairs, strict=True))
    candidates = share_a_band(one, other, 64, 3)
    for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1.0)):
        group = (similarity >= low) & (similarity < high)
        assert group.sum() > 50
        assert candidates[group].mean() == pytest.approx(probability(similarity[group], 64, 3).mean(), abs=0.08)
