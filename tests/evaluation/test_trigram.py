"""The trigram baseline: probabilities by hand, a sum of one, and text that it has never seen."""

import math
import random
from collections import Counter

import pytest
from course_lib.evaluation import bits, trigram
from course_lib.evaluation.trigram import BEGIN, CODES, END, Trigram
from course_lib.evaluation.windows import score
from course_lib.japanese import normalize


def test_witten_bell_by_hand() -> None:
    model = Trigram(["aab"])
    # characters: a 2, b 1, END 1; kinds 3; uniform 1/CODES
    unigram = (2 + 3 / CODES) / (4 + 3)
    assert model.probability("a", "") == pytest.approx(unigram)
    # after a: a once, b once, so kinds 2
    bigram = (1 + 2 * unigram) / (2 + 2)
    assert model.probability("a", "a") == pytest.approx(bigram)
    # after BEGIN a: a once, kinds 1
    assert model.probability("a", BEGIN + "a") == pytest.approx((1 + bigram) / 2)


def test_probabilities_sum_to_one() -> None:
    model = Trigram(["春はあけぼの。やうやう白くなりゆく", "夏は夜。月のころはさらなり"])
    seen = {gram[-1] for gram in model.counts[0]}
    for context in ("", "は", "夏は", "zz", "。月"):
        total = sum(model.probability(character, context) for character in seen)
        rest = (CODES - len(seen)) * model.probability("\u2603", context)
        assert total + rest == pytest.approx(1)


def test_known_text_costs_less_than_shuffled_text() -> None:
    text = "春はあけぼの。やうやう白くなりゆく山ぎは、すこしあかりて、紫だちたる雲のほそくたなびきたる。"
    model = Trigram([text] * 3)
    shuffled = "".join(random.Random(0).sample(text, len(text)))
    assert bits.bits(model, [text]).bits_per_character < 1 < 4 < bits.bits(model, [shuffled]).bits_per_character


def test_text_is_normalized_and_the_end_is_a_token() -> None:
    model = Trigram(["Ａだ"], normalize)
    tokens = model.tokens("Ａだ", end=True)
    assert list(map(chr, tokens.target)) == ["A", "だ", END] and tokens.text == "Aだ"
    (found,) = score(model, [tokens])
    by_hand = [model.probability("A", BEGIN * 2), model.probability("だ", BEGIN + "A"), model.probability(END, "Aだ")]
    assert found.total == pytest.approx(sum(map(math.log, by_hand)))


@pytest.mark.parametrize("at_once", [1, 7, 10**6])
def test_counts_do_not_depend_on_how_many_characters_are_counted_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigram, "AT_ONCE", at_once)
    rng = random.Random(at_once)
    texts = ["".join(rng.choices("あいう😀\ud800", k=rng.randint(0, 9))) for _ in range(40)]
    expected: list[Counter[str]] = [Counter(), Counter(), Counter()]
    for text in texts:
        line = BEGIN + BEGIN + text + END
        for order, counts in enumerate(expected):
            counts.update(line[at - order : at + 1] for at in range(2, len(line)))
    model = Trigram(texts)
    assert model.counts == expected and model.characters == sum(map(len, texts))


def test_the_unigram_model_ignores_what_precedes() -> None:
    model = Trigram(["aab"]).unigram()
    # characters: a 2, b 1, END 1; kinds 3; uniform 1/CODES
    costs = [-math.log2((count + 3 / CODES) / (4 + 3)) for count in (1, 2, 1)]
    assert bits.bits(model, ["ba"]).bits == pytest.approx(sum(costs))
    assert model.probability("a", "xx") == model.probability("a", "")


def test_normalized_documents_are_counted_as_they_are() -> None:
    model = Trigram(["Ａだ"], normalize, normalized=True)
    assert set(model.counts[0]) == {"Ａ", "だ", END} and model.tokens("Ａだ", end=False).text == "Aだ"
