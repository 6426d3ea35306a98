"""What the driver of Juman++ promises, against a stand-in that misbehaves as the program does, and against the program where it is."""

import sys
from pathlib import Path

import pytest
from course_lib.errors import CourseError, UsageError
from course_lib.japanese.jumanpp import RUN, UNFIT, JumanppSegmenter, find_binary, pieces
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

UNRULY = Path(__file__).with_name("unruly_jumanpp.py")
REAL = find_binary()

NASTY = [
    "a" * 4095,
    "ー" * 1300,
    "漢" * 1300,
    "あいうえおかきくけこ" * 130,
    "",
    " ",
    "# コメント",
    "# " + "長" * 2000,
    "# ",
    "# # # x",
    "猫。" * 5000,
    "あ、" * 700 + "# " + "い、" * 700,
    "字" * 70000,
    "New York  に　行く ",
    "\x00a\x1fb\x1f\r\t\x7f\x85\u2028",
    "\ud800 \udfff\ud83d\ude00",
    "👨\u200d👩\u200d👧🇯🇵か\u3099𠮷" * 200,
    '"「\\\'"',
    "12,345.67" * 600,
]
# Without the stand-in's own bad words.
TEXT = st.text(st.characters(exclude_characters="\n眠死失化", exclude_categories=()))
TRAPS = st.lists(
    st.sampled_from([*"# 。、\x1f\x00\ud800 \u3000a1亜ｱ", "# ", "ア" * 150, "ー" * 99, "a" * 101, "あ" * 1400]),
    max_size=12,
)
LINES = st.lists(TEXT | TRAPS.map("".join), max_size=8)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    script = tmp_path_factory.mktemp("bin") / "jumanpp"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{UNRULY}" "$@"\n')
    script.chmod(0o755)
    return script


@pytest.fixture
def segmenter(program: Path) -> JumanppSegmenter:
    return JumanppSegmenter(program)


def check(lines: list[str], answer: tuple[list[list[str]], int]) -> None:
    found, failed = answer
    assert failed == 0
    assert ["".join(words) for words in found] == lines
    for word in (word for words in found for word in words):
        assert word and (len(word) == 1 or not any(map(str.isspace, word)))


@given(TEXT | TRAPS.map("".join))
def test_pieces_add_up_and_can_be_carried(line: str) -> None:
    found = list(pieces(line))
    assert "".join(found) == line
    for piece in found:
        if UNFIT.search(piece):
            assert len(piece) == 1
        else:
            assert 0 < len(piece.encode()) <= 4096
            assert not RUN.search(piece) and (piece == "# " or not piece.startswith("# "))


def test_long_lines_are_cut_at_sentence_ends_commas_and_spaces() -> None:
    sentence = "きょうは雨がふった、と書いた。"
    assert all(piece[-1] in "、。" for piece in pieces(sentence * 200))
    assert [len(piece) for piece in pieces("1" * 2500)] == [1000, 1000, 500]
    assert list(pieces(sentence)) == [sentence]


def test_nothing_is_lost_shifted_or_split_inside(segmenter: JumanppSegmenter) -> None:
    check(NASTY, segmenter.words(NASTY))
    assert segmenter.words(["New York", "# x", "猫"]) == ([list("New York"), list("# x"), ["猫"]], 0)
    assert segmenter.words([]) == ([], 0)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES)
@example(["# ", "# a", "#", "# " + "。" * 2000])
def test_words_add_up_to_the_line(segmenter: JumanppSegmenter, lines: list[str]) -> None:
    check(lines, segmenter.words(lines))


@pytest.mark.parametrize("word", ["死", "失", "化"])
def test_a_bad_piece_is_kept_whole_counted_and_alone(segmenter: JumanppSegmenter, word: str) -> None:
    lines = ["犬" if i != 6 else f"猫が{word}ぬ" for i in range(20)]
    assert segmenter.words(lines) == ([[line] for line in lines], 1)
    assert segmenter.words(["犬と猫"]) == ([list("犬と猫")], 0)


@pytest.mark.parametrize("name", ["<s>", "</s>", "<unk>", "<<s>>", "<0x41>"])
def test_a_bad_piece_spells_no_control_token(segmenter: JumanppSegmenter, name: str) -> None:
    """Segmented text is encoded as it stands, so that a word <s> would become the control token."""
    ((words,), failed) = segmenter.words([f"死 {name}a{name}"])
    assert ("".join(words), failed) == (f"死 {name}a{name}", 1)
    assert all(len(word) == 1 or "<" not in word for word in words)


def test_words_of_a_bad_piece_without_brackets_are_whole(segmenter: JumanppSegmenter) -> None:
    assert segmenter.words(["死 s>a, (^^) ＜s＞"]) == ([["死", " ", "s>a,", " ", "(^^)", " ", "＜s＞"]], 1)


def test_a_hanging_program_is_stopped(program: Path) -> None:
    segmenter = JumanppSegmenter(program, timeout=1)
    assert segmenter.words(["あい", "眠 い"]) == ([list("あい"), ["眠", " ", "い"]], 1)


@pytest.mark.parametrize(
    ("mode", "message"), [("no-model", "Model file was not specified"), ("dead", "0 lines .*exit code 139")]
)
def test_another_program_is_refused_in_one_line(
    program: Path, monkeypatch: pytest.MonkeyPatch, mode: str, message: str
) -> None:
    monkeypatch.setenv("UNRULY", mode)
    with pytest.raises(CourseError, match=message) as caught:
        JumanppSegmenter(program)
    assert "\n" not in str(caught.value) and str(program) in str(caught.value)


def test_a_program_that_breaks_on_the_way_is_an_error_not_a_corpus_of_failures(
    segmenter: JumanppSegmenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRULY", "dead")
    with pytest.raises(CourseError, match="exit code 139"):
        segmenter.words(["犬", "猫"])


def test_where_the_binary_is_looked_for(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JUMANPP", raising=False)
    assert find_binary() is None
    monkeypatch.setenv("JUMANPP", str(program))
    assert find_binary() == program
    monkeypatch.setenv("JUMANPP", str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"JUMANPP: .* is no program"):
        find_binary()


@pytest.mark.skipif(REAL is None, reason="the Juman++ binary is not on PATH nor in $JUMANPP")
def test_the_real_program_loses_nothing() -> None:
    assert REAL
    real = JumanppSegmenter(REAL)
    check(NASTY, real.words(NASTY))
    given(LINES)(settings(max_examples=40)(lambda lines: check(lines, real.words(lines))))()
    assert real.words(["早稲田大学で学ぶ"]) == ([["早稲田", "大学", "で", "学ぶ"]], 0)
