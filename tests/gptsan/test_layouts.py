"""Layouts on a tokenizer of letters, where every id can be told by eye. The original's own examples were compared by hand (all equal)."""

from typing import Any

import numpy as np
from course_lib.gptsan.config import EncodeConfig
from course_lib.gptsan.layouts import NO_TARGET, Marks, decoder_part, encoder_length, pack
from hypothesis import given
from hypothesis import strategies as st

LETTERS = "\n。？abcdefghijklmnopqrstuvwxyz#"
BYTE0 = len(LETTERS)


class Letters:
    """A letter is a token; `#` stands for what cleaning puts in the place of a `z`; anything else is byte 0 or byte 1."""

    sot, msk, sep, nottoken, bag, seg, eot = range(BYTE0 + 2, BYTE0 + 9)

    def encode_text(self, text: str, clean: bool = False) -> list[int]:
        if text == "<|byte0|>":
            return [BYTE0]
        text = text.replace("z", "#") if clean else text
        return [i for c in text for i in ([LETTERS.index(c)] if c in LETTERS else [BYTE0, BYTE0 + 1])]


NAMES = [*LETTERS.replace("\n", "/"), "0", "1", "<", "M", "S", ".", "B", "|", "E"]
LETTER: Any = Letters()
MARKS = Marks.of(LETTER)


def names(ids: list[int]) -> str:
    """`<` SOT, `M` mask, `S` SEP, `.` NOT, `B` bag, `|` SEG, `E` EOT, `/` line end, `_` nothing learned."""
    return "".join("_" if i == NO_TARGET else NAMES[i] for i in ids)


def packed(*lines: str, seed: int = 0, another: str = "y", **settings: Any) -> tuple[list[tuple[str, str, int]], int]:
    examples, left_out = pack(
        lines, LETTER, MARKS, EncodeConfig(**settings), np.random.default_rng(seed), lambda: another
    )
    return [(names(example.x), names(example.y), example.num_input) for example in examples], left_out


def test_lm_predicts_the_next_token_and_the_end_which_the_original_leaves_out() -> None:
    assert packed("ab。", "c", num_context=12) == ([("<|abS/c/E...", "_ab。/c/E____", 1)], 0)
    assert packed("ab。", "c", num_context=12, original_layout=True) == ([("<|abS/c/E...", "_ab。/c/_E___", 1)], 0)


def test_decoder_part_is_cleaned_and_the_encoder_part_is_not() -> None:
    assert packed("zaaaa。", num_context=12)[0] == [("<|#aBS/E....", "_#aB。/E_____", 1)]
    (x, y, num_input), *_ = packed("zaaa。", "zaaa。", "b", mode="mlm", num_context=13, num_mask=0)[0]
    assert (x, y, num_input) == ("<zaaa。/zaaa|S", "_" * 11 + "。/", 11)


def test_what_does_not_fit_begins_the_next_example() -> None:
    assert packed("abcdefghij", num_context=8) == (
        [("<|abcdef", "_abcdefg", 1), ("<|ghij/E", "_ghij/E_", 1)],
        0,
    )
    assert packed("abcdefghij", "kl", num_context=8, original_layout=True) == (
        [("<|abcdef", "_abcdefg", 1), ("<|kl/E..", "_kl/_E__", 1)],
        5,
    )


def test_a_full_example_at_the_end_of_a_document() -> None:
    assert packed("abcdef", num_context=8) == ([("<|abcdef", "_abcdef/", 1)], 1)  # no example of a line end alone


@given(st.lists(st.text("ab。z\tc", max_size=12), min_size=1, max_size=8), st.integers(8, 24))
def test_lm_reads_and_predicts_every_token_of_a_document(lines: list[str], context: int) -> None:
    settings = EncodeConfig(num_context=context)
    examples, left_out = pack(lines, LETTER, MARKS, settings, np.random.default_rng(0), lambda: "")
    parts = [decoder_part([*LETTER.encode_text(line.strip(), True), MARKS.newline], MARKS) for line in lines]
    seen: list[int] = []
    learned: list[int] = []
    for example in examples:
        assert len(example.x) == len(example.y) == context and example.x[:2] == [MARKS.sot, MARKS.seg]
        size = context - example.x.count(MARKS.nottoken)
        ended = example.x[size - 1] == MARKS.eot
        seen += example.x[2 : size - ended]
        learned += example.y[1 : size - 1 - ended]  # the last one is of a token in the next example, or the end
        assert example.y[0] == NO_TARGET and NO_TARGET not in example.y[1 : size - ended]
        assert not ended or (example.y[size - 2] == MARKS.eot and set(example.y[size - 1 :]) == {NO_TARGET})
    for this, following in zip(examples, examples[1:]):
        assert this.y[-1] in (following.y[1], MARKS.newline)
    for stream, part in (seen, 0), (learned, 1):
        whole = [i for pair in parts for i in pair[part]]
        assert len(stream) == len(whole) - left_out
        assert [i for i in stream if i != MARKS.newline] == [i for i in whole if i != MARKS.newline]


@given(st.lists(st.integers(0, BYTE0 + 1), max_size=30))
def test_runs_and_sentence_ends(ids: list[int]) -> None:
    read, predicted = decoder_part(ids, MARKS)
    assert decoder_part(predicted, MARKS) == (read, predicted)
    assert [MARKS.sep if i in MARKS.ends else i for i in predicted] == read
    assert not any(a == b == c <= MARKS.last for a, b, c in zip(predicted, predicted[1:], predicted[2:]))
    assert not MARKS.ends & set(read)


def test_masks() -> None:
    line = "abcdefghijklmnopqrstuvwxy" * 40
    settings = EncodeConfig(mode="mlm", num_context=1003, num_mask=0.3, max_mask=250)
    plain = [MARKS.sot, *LETTER.encode_text(line)]
    became = {"mask": 0, "other": 0, "same": 0}
    for seed in range(20):
        (example,), left_out = pack([line], LETTER, MARKS, settings, np.random.default_rng(seed), lambda: "")
        assert example.num_input == 1001 and names(example.x[1001:]) == "|/" and names(example.y[1001:]) == "/E"
        learned = [position + 1 for position in range(1001) if example.y[position] != NO_TARGET]
        assert len(learned) == 250 and left_out == 0
        for position in range(1, 1001):
            if position in learned:
                assert example.y[position - 1] == plain[position]
                token = example.x[position]
                assert token == MARKS.msk or token < MARKS.last
                became["mask" if token == MARKS.msk else "same" if token == plain[position] else "other"] += 1
            else:
                assert example.x[position] == plain[position]
    total = sum(became.values())
    assert abs(became["mask"] / total - 0.8) < 0.02 and abs(became["same"] / total - 0.1) < 0.02


def test_no_offset_learns_a_mask_where_it_is() -> None:
    line = "abcdefghijklmnopqrstuvwxy"
    masks: dict[str, Any] = {"mode": "mlm", "num_context": 28, "num_mask": 0.4}
    ((x, y, _),), _ = packed(line, **masks)
    ((same, here, _),), _ = packed(line, **masks, no_offset_mlm=True)
    assert x == same and here[1:26] == y[:25] and here[26:] == y[26:] == "/E"
    ((moved, there, _),), _ = packed(line, **masks, no_offset_mlm=True, original_layout=True)
    assert moved == "<" + x[2:] + "E" and there[:26] == y[:26]


def test_a_document_that_ends_in_the_encoder_part_gives_no_example() -> None:
    assert packed("abc", "d", mode="mlm", num_context=16) == ([], 6)
    assert packed("abcdefghijklmnop", "d", mode="mlm", num_context=16, num_mask=0) == (
        [("<abcdefghijklm|n", "_" * 14 + "no", 14)],
        5,  # what is left is too short as well
    )


def test_hybrid_draws_the_length_of_the_encoder_part() -> None:
    rng = np.random.default_rng(0)
    assert {encoder_length("hybrid", 16, 3, rng) for _ in range(500)} == set(range(11))
    lines, seen = ["abcdefghijklmnop"] * 3, set()
    for seed in range(100):
        for x, y, num_input in packed(*lines, seed=seed, mode="hybrid", num_context=16, num_mask=0)[0]:
            assert x.index("|") == num_input and set(y[:num_input]) == {"_"}
            seen.add(num_input)
    assert seen == set(range(1, 15))


def test_the_line_before_is_learned_to_follow_or_not() -> None:
    seen = set()
    for seed in range(20):
        ((x, y, num_input), *_), _ = packed(
            "ab", "cdefghijklmnop", seed=seed, another="xy", mode="mlm", num_context=16, num_mask=0, use_nextsent=True
        )
        seen.add((x, y[:13], num_input))
    assert seen == {
        ("<abScdefghijkl|m", "__S__________", 14),
        ("<xySab/cdefghi|j", "__E__________", 14),
    }
