"""Layouts on a tokenizer of letters, where every id can be told by eye."""

from typing import Any

from course_lib.gptsan.layouts import NO_TARGET, SpecialIds, inputs_and_targets, pack
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
SPECIAL = SpecialIds.of(LETTER)


def names(ids: list[int]) -> str:
    """`<` SOT, `M` mask, `S` SEP, `.` NOT, `B` bag, `|` SEG, `E` EOT, `/` line end, `_` nothing learned."""
    return "".join("_" if i == NO_TARGET else NAMES[i] for i in ids)


def packed(*lines: str, context: int) -> list[tuple[str, str]]:
    return [(names(x), names(y)) for x, y in pack(lines, LETTER, SPECIAL, context)]


def test_the_next_token_and_the_end_are_predicted() -> None:
    assert packed("ab。", "c", context=12) == [("<|abS/c/E...", "_ab。/c/E____")]


def test_text_is_cleaned_and_runs_are_bagged() -> None:
    assert packed("zaaaa。", context=12) == [("<|#aBS/E....", "_#aB。/E_____")]


def test_what_does_not_fit_begins_the_next_example() -> None:
    assert packed("abcdefghij", context=8) == [("<|abcdef", "_abcdefg"), ("<|ghij/E", "_ghij/E_")]


def test_a_full_example_at_the_end_of_a_document() -> None:
    assert packed("abcdef", context=8) == [("<|abcdef", "_abcdef/")]  # no example of a line end alone


@given(st.lists(st.text("ab。z\tc", max_size=12), min_size=1, max_size=8), st.integers(8, 24))
def test_lm_reads_and_predicts_every_token_of_a_document(lines: list[str], context: int) -> None:
    examples = pack(lines, LETTER, SPECIAL, context)
    parts = [inputs_and_targets([*LETTER.encode_text(line.strip(), True), SPECIAL.newline], SPECIAL) for line in lines]
    seen: list[int] = []
    learned: list[int] = []
    for x, y in examples:
        assert len(x) == len(y) == context and x[:2] == [SPECIAL.sot, SPECIAL.seg]
        size = context - x.count(SPECIAL.nottoken)
        ended = x[size - 1] == SPECIAL.eot
        seen += x[2 : size - ended]
        learned += y[1 : size - 1 - ended]  # the last one is of a token in the next example, or the end
        assert y[0] == NO_TARGET and NO_TARGET not in y[1 : size - ended]
        assert not ended or (y[size - 2] == SPECIAL.eot and set(y[size - 1 :]) == {NO_TARGET})
    for (_, this), (_, following) in zip(examples, examples[1:]):
        assert this[-1] in (following[1], SPECIAL.newline)
    for stream, part in (seen, 0), (learned, 1):
        whole = [i for pair in parts for i in pair[part]]
        assert [i for i in stream if i != SPECIAL.newline] == [i for i in whole if i != SPECIAL.newline]


@given(st.lists(st.integers(0, BYTE0 + 1), max_size=30))
def test_runs_and_sentence_ends(ids: list[int]) -> None:
    read, predicted = inputs_and_targets(ids, SPECIAL)
    assert inputs_and_targets(predicted, SPECIAL) == (read, predicted)
    assert [SPECIAL.sep if i in SPECIAL.ends else i for i in predicted] == read
    assert not any(a == b == c <= SPECIAL.last for a, b, c in zip(predicted, predicted[1:], predicted[2:]))
    assert not SPECIAL.ends & set(read)
