"""MinHash banding by itself: the probability, the candidates and the pairs to measure them on."""

import numpy as np
import pytest
from course_lib.corpus.banding import gram_set, jaccard, probability, share_a_band, spliced
from course_lib.corpus.config import DedupConfig
from course_lib.corpus.dedup import signatures


def similar(one: str, other: str, ngram: int) -> float:
    return jaccard(gram_set(one, ngram), gram_set(other, ngram))


def test_the_probability_is_that_of_random_rows() -> None:
    rng = np.random.default_rng(0)
    for similarity, bands, rows in ((0.5, 4, 3), (0.8, 2, 5), (0.2, 16, 2)):
        # Two rows agree with probability `similarity`: the other signature is redrawn elsewhere.
        one = rng.integers(1 << 30, size=(40_000, bands * rows))
        other = np.where(rng.random(one.shape) < similarity, one, one + 1)
        measured = share_a_band(one, other, bands, rows).mean()
        assert measured == pytest.approx(float(probability(similarity, bands, rows)), abs=0.01)
    assert probability([0.0, 1.0], 64, 3).tolist() == [0.0, 1.0]


def test_all_rows_of_a_band_must_agree_and_the_rest_is_not_used() -> None:
    one = np.array([[1, 2, 3, 4, 5]] * 4)
    other = np.array([[1, 2, 0, 0, 5], [1, 0, 3, 0, 5], [0, 0, 3, 4, 0], [0, 2, 3, 0, 5]])
    assert share_a_band(one, other, 2, 2).tolist() == [True, False, True, False]
    assert share_a_band(one, other, 1, 2).tolist() == [True, False, False, False]
    assert share_a_band(one, other, 4, 1).tolist() == [True, True, True, True]


def test_jaccard_is_the_share_of_common_character_ngrams() -> None:
    assert similar("あいう", "いうえ", 2) == pytest.approx(1 / 3)
    assert similar("ＡＢ Ｃ", "ABC", 2) == 1.0
    assert similar("雨", "雪", 4) == 0.0
    assert similar("あああああ", "ああ", 2) == 1.0
    assert jaccard({1, 2, 3}, {3, 4}) == 1 / 4


def test_spliced_pairs_have_every_similarity() -> None:
    texts = ["".join(chr(0x4E00 + 400 * number + at) for at in range(200)) for number in range(5)] + ["短い"]
    pairs = spliced(texts, 10)
    assert len(pairs) == 50 and all(abs(len(other) - 200) <= 1 for _, other in pairs)
    similarity = [similar(one, other, 4) for one, other in pairs]
    # A copy with a share c of its text kept has about c / (2 - c) of all n-grams in common.
    kept = np.tile((np.arange(10) + 0.5) / 10, 5)
    assert similarity == pytest.approx(kept / (2 - kept), abs=0.02)


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
