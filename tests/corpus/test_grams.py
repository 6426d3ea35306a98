"""Runs of characters as numbers: equal exactly when the runs are equal."""

import unicodedata

import pytest
from course_lib.corpus.dedup import code_points, folded, gram_hashes
from hypothesis import given
from hypothesis import strategies as st


@given(st.text("あいう漢𠮷A", max_size=60), st.integers(1, 6))
def test_numbers_are_equal_exactly_when_the_runs_are(text: str, size: int) -> None:
    hashes = gram_hashes(code_points(text), size).tolist()
    runs = [text[at : at + size] for at in range(max(len(text) - size + 1, 1))]
    assert len(hashes) == len(runs)
    assert len(set(zip(runs, hashes, strict=True))) == len(set(runs)) == len(set(hashes))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("ＡＢＣ　１２３！", "ABC123!"),
        ("ﾊﾞﾅﾅ ﾊﾟﾌｪ ｱｲｽ", "バナナパフェアイス"),
        ("か\u3099く\nけ", "がくけ"),
        ("Ⅳ\u00a0①", "Ⅳ①"),
    ],
)
def test_width_and_white_space_make_no_difference(left: str, right: str) -> None:
    assert folded(left).tolist() == folded(right).tolist() != []


@given(st.text(st.characters(codec="utf8", exclude_characters="ﾞﾟ\0"), max_size=30))
def test_folding_is_nfkc_wherever_that_gives_one_character(text: str) -> None:
    normal = {character: unicodedata.normalize("NFKC", character) for character in text}
    compared = [c for c in text if len(normal[c]) == 1 and not c.isspace() and not unicodedata.combining(c)]
    assert folded("".join(compared)).tolist() == [ord(normal[character]) for character in compared]
