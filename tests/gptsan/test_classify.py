from math import exp, log

import pytest
from course_lib.gptsan.classify import NaiveBayes, bigrams


def test_bigrams_cross_white_space_and_leave_out_broken_characters() -> None:
    assert bigrams("犬 が\n\ufffd吠") == ["犬が", "が吠"]
    assert bigrams("犬") == [] == bigrams("")


def test_scores_are_counts_plus_one_of_all_kinds() -> None:
    judge = NaiveBayes(["ああい", "いう"], [0, 3])  # ああ, あい | いう: three kinds and one for what was never seen
    assert judge.score("あああ", 0) == pytest.approx(2 * log(2 / 6))
    assert judge.score("いうえ", 3) == pytest.approx(log(2 / 5) + log(1 / 5))
    seen = [exp(judge.score(pair, 3)) for pair in ("ああ", "あい", "いう", "んん")]
    assert sum(seen) == pytest.approx(1)


def test_classes_are_told_apart() -> None:
    judge = NaiveBayes(["雨が降る。風が強い。", "鍋で煮る。塩を入れる。"], [1, 2])
    assert [judge.classify(text) for text in ("雨が強い。", "塩で煮る。", "", "あ")] == [1, 2, 1, 1]
    assert judge.accuracy(["雨が", "煮る", "煮る"], [1, 2, 1]) == pytest.approx(2 / 3)


def test_what_cannot_be_learned_is_refused() -> None:
    with pytest.raises(ValueError, match="no texts"):
        NaiveBayes([], [])
    with pytest.raises(ValueError, match="zip"):
        NaiveBayes(["あ"], [0, 1])
