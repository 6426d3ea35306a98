"""Reversibility, and the traps of the analyser (reference: the Juman dictionary has entries that end inside a character)."""

import lzma

from course_lib.japanese import desegment, mecab, segment
from course_lib.japanese.segment import escape_spaces, restore_spaces
from course_lib.workspace import products as workspace
from hypothesis import example, given
from hypothesis import strategies as st

NASTY = st.text(
    alphabet=st.sampled_from(list("早稲田大学でｱ ␣␛se\x00\r\t\u3000\u00a0\x85\u2028▁😀\u200d👩🏽#<>'\"\\%,")),
    max_size=40,
)
# Any character, lone surrogates too.
ANY = st.text(st.characters(exclude_characters="\n", exclude_categories=())) | NASTY


def test_the_recipe_authors_example() -> None:
    text = "早稲田大学で自然言語処理を勉強している大学生です。"
    plain = "早稲田 大学 で 自然 言語 処理 を 勉強 して いる 大学生 です 。"
    assert segment(text, mark_spaces=False) == segment(text) == plain
    assert desegment(plain) == text


def test_spaces_are_marked_or_dropped() -> None:
    assert segment("Visual  Studioを使う ") == "Visual ␣␣Studio を 使う ␣"
    assert segment("Visual  Studioを使う ", mark_spaces=False) == "Visual Studio を 使う"
    assert segment("␣␛ x") == "␛s␛e ␣x"
    assert segment("雨。\n\n風 a") == "雨 。\n\n風 ␣a"


@given(ANY)
@example("彼は東京でっす。でせうことをゝ")
@example("a" * 3000)
@example("ア" * 3000 + " " * 50)
@example("\x00")
@example("\ud800")
def test_desegment_is_the_inverse(text: str) -> None:
    segmented = segment(text)
    assert desegment(segmented) == text
    assert "  " not in segmented and "\n" not in segmented


@given(st.text())
def test_marks_are_reversible(text: str) -> None:
    escaped = escape_spaces(text)
    assert restore_spaces(escaped) == text and not {" ", "\n"} & set(escaped)


def test_very_long_lines_do_no_harm() -> None:
    for text in ("あ" * 100_000, "ａ" * 50_000):
        assert desegment(segment(text)) == text


def test_offsets_and_words_agree_on_real_text() -> None:
    lines = lzma.decompress(workspace.data("webtext-sample.txt.xz").read_bytes()).decode(errors="ignore").split("\n")
    for line in lines[:200]:
        assert "".join(mecab._by_offsets(line)) == line
        if line.isprintable():
            assert mecab._by_offsets(line[:900]) == mecab.words(line[:900])
