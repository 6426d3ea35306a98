from pathlib import Path

import pytest
from course_lib.gptsan.classify import NaiveBayes, bigrams, texts_of
from course_lib.gptsan.config import EncodeConfig
from course_lib.gptsan.encode import encode
from course_lib.gptsan.examples import Examples
from course_lib.gptsan.swe import load

from tests.gptsan import handmade


def test_bigrams_cross_white_space_and_leave_out_broken_characters() -> None:
    assert bigrams("犬 が\n\ufffd吠") == ["犬が", "が吠"]
    assert bigrams("犬") == [] == bigrams("")


def test_classes_are_told_apart() -> None:
    judge = NaiveBayes(["雨が降る。風が強い。", "鍋で煮る。塩を入れる。"], [1, 2])
    assert [judge.classify(text) for text in ("雨が強い。", "塩で煮る。", "", "あ")] == [1, 2, 1, 1]
    assert judge.accuracy(["雨が", "煮る", "煮る"], [1, 2, 1]) == pytest.approx(2 / 3)


def test_texts_of_examples_are_what_they_predict(tmp_path: Path) -> None:
    for name, text in (("a.txt", "犬が吠えた。"), ("b.txt", "猫")):
        (tmp_path / name).write_text(text, encoding="utf8")
    (tmp_path / "list.csv").write_text("filename,fileid\na.txt,2\nb.txt,1\n", encoding="utf8")
    words = handmade.write(tmp_path / "words")
    encode(str(tmp_path / "list.csv"), words, tmp_path / "out", EncodeConfig(num_context=40, d_spout=4))
    texts, labels = texts_of(Examples(tmp_path / "out"), load(words / "vocab.txt", words / "emoji.json"))
    assert sorted(zip(texts, labels, strict=True)) == [("犬が吠えた。\n", 2), ("猫\n", 1)]
