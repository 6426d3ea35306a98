"""Comparison of segmenters with a gold file."""

from pathlib import Path

import pytest
from course_lib.cli import main
from course_lib.errors import CourseError
from course_lib.japanese import normalize
from course_lib.japanese.gold import read_gold, score, segmenters, spans
from course_lib.paths import REPOSITORY

GOLD = REPOSITORY / "data" / "segmentation-gold.txt"


def run(*arguments: str) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return int(stopped.value.code or 0)


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "gold.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_precision_recall_and_f1_are_those_counted_by_hand() -> None:
    gold = [["外国", "人", "参政", "権"], ["雨"]]
    # 外国 is right; 人参 and 政権 are wrong; 雨 is right: 2 of 4 words made, 2 of 5 gold words.
    found = score(gold, lambda lines: [["外国", "人参", "政権"], ["雨"]])
    assert (found.precision, found.recall) == (2 / 4, 2 / 5)
    assert found.f1 == pytest.approx(2 * 0.5 * 0.4 / 0.9) and found.exact == 0.5 and found.sentences == 2
    assert spans(["外国", "人"]) == {(0, 2), (2, 3)}


def test_the_interval_is_that_of_resampled_sentences() -> None:
    # Half of 100 sentences are right: F1 of a sample is its share of right ones, with a deviation of 0.05.
    gold = [["あ", "い"]] * 100
    found = score(gold, lambda lines: [["あ", "い"]] * 50 + [["あい"]] * 50)
    shares = (2 * 2 * 50) / (2 * 100 + 2 * 50 + 50)
    assert found.f1 == pytest.approx(shares)
    assert found.low == pytest.approx(shares - 0.1, abs=0.03) and found.high == pytest.approx(shares + 0.1, abs=0.03)
    same = score(gold, lambda lines: [["あ", "い"]] * 100)
    assert (same.f1, same.low, same.high, same.exact) == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("雨 が\n雪  が\n", "gold.txt:2: an empty word"),
        ("雨 が\n".encode() + b"\xe9\x9b \xe3\n", "gold.txt:2: not UTF-8"),
        ("ＡＢＣ を\n", "not normalized.*--raw"),
    ],
)
def test_a_bad_gold_file_is_refused_with_its_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(CourseError, match=message):
        read_gold(write(tmp_path, content))


def test_the_bundled_file_is_what_its_readme_says() -> None:
    gold = read_gold(GOLD)
    assert len(gold) >= 100 and len({"".join(words) for words in gold}) == len(gold)
    assert all(normalize("".join(words)) == "".join(words) for words in gold)
    found = {name: score(gold, segmenter) for name, segmenter in segmenters().items() if name != "jumanpp"}
    assert 0.98 < found["mecab"].f1 < 1.0
    assert 0.35 < found["characters"].f1 < 0.5
    assert found["mecab"].low <= found["mecab"].f1 <= found["mecab"].high


def test_the_command_prints_a_row_per_segmenter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "雨 が 降る 。\n")
    assert run("segment-eval", str(path), "--segmenter", "mecab", "--segmenter", "characters") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"1 sentences, 4 words in {path}" and len(lines) == 4
    assert lines[2].split()[:4] == ["mecab", "1.000", "1.000", "1.000"] and lines[2].endswith("characters/s")
    assert lines[3].split()[1:4] == ["0.600", "0.750", "0.667"]


def test_a_missing_segmenter_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JUMANPP", raising=False)
    assert list(segmenters()) == ["mecab", "characters"]
    assert run("segment-eval", str(write(tmp_path, "雨\n")), "--segmenter", "jumanpp") == 1
    error = capsys.readouterr().err
    assert "jumanpp" in error and error.count("\n") == 1
