"""The longest passage that a text shares with others, against all passages; and long texts."""

import random
from time import process_time

from course_lib.world.check import table
from course_lib.world.passages import Passages


def test_it_is_the_longest_of_all_passages() -> None:
    rng = random.Random(0)
    for size in range(300):
        sentences = ["a。", "bb。", "ccc。", "dddd。"][: 1 + size % 4]
        texts = [rng.choices(sentences, k=rng.randint(0, 9)) for _ in range(rng.randint(0, 4))]
        text = rng.choices([*sentences, "x。"], k=rng.randint(0, 12))
        known = {tuple(one[a:b]) for one in texts for a in range(len(one)) for b in range(a + 1, len(one) + 1)}
        spans = (text[a:b] for a in range(len(text)) for b in range(a + 1, len(text) + 1))
        longest = max((len("".join(span)) for span in spans if tuple(span) in known), default=0)
        assert Passages(texts).longest(text) == longest


def test_no_passage_goes_from_one_text_to_the_next() -> None:
    known = Passages([["一。", "二。"], ["三。", "四。"]])
    assert known.longest(["一。", "二。", "三。"]) == 4
    assert known.longest(["二。", "三。", "四。"]) == 4
    assert known.longest(["五。"]) == Passages([]).longest(["一。"]) == 0


def test_a_text_of_many_sentences_takes_a_second() -> None:
    """1,500 sentences took 22 GB, as all passages were kept."""
    text = "".join(f"文{number % 997}だ。" for number in range(20_000))
    begun = process_time()
    found = table([text[100:]], [text])
    assert found["longest copied span"] >= len(text) - 120 and found["copied"] == 0
    assert process_time() - begun < 10
