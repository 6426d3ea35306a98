from collections import Counter
from pathlib import Path

import pytest
from course_lib.errors import CourseError
from course_lib.gptsan import vocabulary
from course_lib.gptsan.swe import EMOJI, SPECIALS
from course_lib.gptsan.tokenizer import load_tokenizer
from course_lib.gptsan.vocabulary import ALWAYS, build_vocabulary, emoji_tables

LEAST = len(SPECIALS) + len(ALWAYS)
TEXTS = ["猫がねている。猫がないている。", "大学の猫と大學の犬　😀", "ねている犬 <b>5円</b> 2023年2023年"]


@pytest.mark.parametrize("most", [4_000_000, 20])  # 20: the rarest are forgotten
def test_the_entries_that_save_most_come_first(tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "MOST_SUBSTRINGS", most)
    counts = build_vocabulary(TEXTS * 5, LEAST + 12, tmp_path / "v", 0.0)
    lines = (tmp_path / "v" / "vocab.txt").read_text(encoding="utf8").split("\n")
    assert counts["entries"] == len(lines) == LEAST + 12
    assert lines[-len(SPECIALS) :] == list(SPECIALS)
    assert lines[0] == "ている"  # 3 times, 2 tokens saved each; てい saves 3
    long = lines[: counts["substrings"]]
    assert "いてい" not in lines
    assert all(len(line.split(",")[0]) > 1 for line in long)
    assert all(len(line.split(",")[0]) == 1 or line == "," for line in lines[counts["substrings"] : -len(SPECIALS)])


def test_characters_that_cover_the_texts_come_before_substrings(tmp_path: Path) -> None:
    """Of the 10 entries beside ASCII, the characters that make up half of the texts are certain of theirs."""
    counts = Counter(c for text in TEXTS for c in text if c in "猫がねている大学の犬年円")
    build_vocabulary(TEXTS, LEAST + 10, tmp_path / "v", 0.0)
    build_vocabulary(TEXTS, LEAST + 10, tmp_path / "covered", 0.99)
    loose, covered = (load_tokenizer(tmp_path / name).swe for name in ("v", "covered"))
    often = {c for c, n in counts.items() if n > 1}
    assert not often <= loose.ids.keys() and often <= covered.ids.keys()
    assert all(len(covered.encode_text(c)) == 1 for c in often)


def test_no_entry_of_three_that_its_first_two_always_beat(tmp_path: Path) -> None:
    # 猫か: 4 × 1, 猫かな: 2 × 2; 犬か: 2 × 1, 犬かな: 2 × 2
    build_vocabulary(["猫かな 猫かに 犬かな"] * 2, LEAST + 10, tmp_path / "v", 0.0)
    lines = (tmp_path / "v" / "vocab.txt").read_text(encoding="utf8").split("\n")
    assert "犬かな" in lines and "猫か" in lines and "猫かな" not in lines


def test_refusals_leave_the_earlier_product(tmp_path: Path) -> None:
    build_vocabulary(TEXTS, LEAST + 5, tmp_path / "v", 0.0)
    before = (tmp_path / "v" / "vocab.txt").read_bytes()
    for texts, size, message in (
        (TEXTS, LEAST, "is too small"),
        (TEXTS, 36000, "more than these texts fill"),
        ([""], 999, "no text"),
    ):
        with pytest.raises(CourseError, match=message):
            build_vocabulary(texts, size, tmp_path / "v", 0.0)
    assert (tmp_path / "v" / "vocab.txt").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_emoji() -> None:
    tables = emoji_tables()
    emoji, shown = tables["emoji"], tables["emoji_inv"]
    assert tuple(shown) == EMOJI
    assert {emoji[shown[token]] for token in EMOJI} == set(EMOJI)
    assert all(emoji[shown[token]] == token for token in EMOJI)
    texts = list(emoji)
    assert not [t for i, t in enumerate(texts) for later in texts[i + 1 : i + 40] if t != later and t in later]
    assert len({emoji[text] for text in ("👍", "👍\ufe0f", "🤚")}) == 1
    assert not emoji.keys() & set("★☆♪○●→。、a1")
