"""Words that a user does not want: what counts as an occurrence, and what becomes of such documents."""

import re
from pathlib import Path

import pytest
from course_lib.corpus.config import FilterConfig, WebtextConfig
from course_lib.corpus.filters import count_blocked
from course_lib.corpus.webtext import clean_webtext
from course_lib.errors import CourseError
from hypothesis import given
from hypothesis import strategies as st

TEXT = "当店のお得なセールは今週まで。セールスマンも驚く安さです。期間限定の品もあり、毎日の買い物にお役立てください。送料は全国どこでも無料です。お申し込みは電話でも受け付けています。"
PLAIN = "朝の市場では、とれたての魚が氷の上に並んでいる。店の人は大きな声で客を呼び、子どもたちは店先の貝をのぞきこんでいた。昼前には売り切れるので、遅く来た客は残った貝と海草を買って帰ることになる。"


def listed(folder: Path, *words: str) -> Path:
    path = folder / "words.txt"
    path.write_text("# 広告の語\n\n" + "\n".join(words) + "\n", encoding="utf8")
    return path


@pytest.mark.parametrize(
    ("words", "text", "count"),
    [
        (["セール"], "セールの日、セールスの人", 1),
        (["セール", "セールス"], "セールの日、セールスの人", 2),
        (["sale"], "ＳＡＬＥ、Sales、sale!", 2),
        (["1+1"], "1+1=2, 11", 1),
    ],
)
def test_what_counts(tmp_path: Path, words: list[str], text: str, count: int) -> None:
    assert count_blocked(text, listed(tmp_path, *words)) == count


@given(st.sets(st.text("あいう", min_size=1, max_size=4), min_size=1), st.text("あいうえ", max_size=30))
def test_the_words_are_found_as_by_a_plain_alternation(
    tmp_path_factory: pytest.TempPathFactory, words: set[str], text: str
) -> None:
    longest_first = "|".join(sorted(words, key=lambda word: (-len(word), word)))
    path = listed(tmp_path_factory.mktemp("words"), *words)
    assert count_blocked(text, path) == len(re.findall(longest_first, text))


def test_documents_with_more_than_the_limit_go(tmp_path: Path) -> None:
    source, words = tmp_path / "in.txt", listed(tmp_path, "期間限定", "送料", "無料")
    source.write_text(f"{TEXT}\n\n{PLAIN}\n", encoding="utf8")
    for limit, kept in ((0, 1), (2, 1), (3, 2)):
        settings = WebtextConfig(filters=FilterConfig(blocked_words=words, max_blocked=limit))
        for workers in (1, 2):
            report = clean_webtext(source, tmp_path / "out.jsonl", settings, workers)
            assert report.documents_out == kept and report.limits["blocked_words"] == f"> {limit}"
    assert "blocked_words" not in clean_webtext(source, tmp_path / "out.jsonl").limits


@pytest.mark.parametrize(
    ("content", "wanted"), [(b"# only a remark\n\n", "no words"), ("広告".encode("cp932"), "not UTF-8 at byte 0")]
)
def test_a_bad_list_is_refused_in_one_line(tmp_path: Path, content: bytes, wanted: str) -> None:
    (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(CourseError, match=rf"words\.txt: {wanted}"):
        count_blocked("", tmp_path / "words.txt")
