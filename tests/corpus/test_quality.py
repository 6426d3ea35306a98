"""The learned score: deterministic, separates two kinds of text, safe to load, and a filter of webtext."""

import csv
from pathlib import Path

import numpy as np
import orjson
import pytest
from course_lib.corpus.config import FilterConfig, WebtextConfig
from course_lib.corpus.quality import cross_fitted, load_quality, save_quality, train_quality
from course_lib.corpus.webtext import clean_webtext
from course_lib.errors import CourseError
from course_lib.paths import data

DRY = [f"{name}は日本の都市である。人口は{number}万人である。" for name in "東西南北春夏秋冬" for number in (3, 12, 40)]
CHATTY = [
    f"今日は{name}を食べたよ！！すごくおいしかったですね〜{n}回目です。"
    for name in "梨柿桃栗瓜蟹鯛鮭"
    for n in (1, 2, 5)
]


def test_separates_unseen_texts_and_is_deterministic() -> None:
    quality = train_quality(DRY, CHATTY)
    assert quality.score("京都は日本の都市である。人口は百万人である。") > 1
    assert quality.score("昨日はうどんを食べたよ！！最高でしたね〜。") < -1
    again = train_quality(DRY, CHATTY)
    assert np.array_equal(quality.weights, again.weights) and quality.bias == again.bias


def test_empty_text_has_a_score() -> None:
    quality = train_quality(DRY, CHATTY)
    assert quality.score("") == quality.bias


def test_cross_fitting_scores_a_document_without_having_seen_it() -> None:
    # A dry text among the unwanted ones: a classifier that has seen it there scores it lower.
    unwanted = [*CHATTY, DRY[0]]
    assert train_quality(DRY[1:], unwanted).score(DRY[0]) < cross_fitted(DRY[1:], unwanted)[-1]
    assert all(score < 0 for score in cross_fitted(DRY, CHATTY))


def test_score_and_limit_need_each_other() -> None:
    for part in ({"quality": "quality.npz"}, {"min_quality": 0.0}):
        with pytest.raises(ValueError, match="need each other"):
            FilterConfig(**part)


def test_one_class_without_text_is_an_error() -> None:
    with pytest.raises(CourseError, match="both classes"):
        train_quality(DRY, [])


def test_file_holds_the_classifier(tmp_path: Path) -> None:
    quality = train_quality(DRY, CHATTY)
    save_quality(quality, tmp_path / "quality.npz")
    assert load_quality(tmp_path / "quality.npz").score(DRY[0]) == quality.score(DRY[0])


def test_trained_again_is_loaded_again(tmp_path: Path) -> None:
    for wanted, unwanted in ((DRY, CHATTY), (CHATTY, DRY)):
        save_quality(train_quality(wanted, unwanted), tmp_path / "quality.npz")
        assert load_quality(tmp_path / "quality.npz").score(wanted[0]) > 0


@pytest.mark.parametrize("content", [b"no classifier", b"PK\x03\x04 broken"])
def test_other_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.npz").write_bytes(content)
    with pytest.raises(CourseError, match="is not a quality classifier"):
        load_quality(tmp_path / "other.npz")


def test_pickled_file_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", weights=np.array([{}], dtype=object), bias=0.0)
    with pytest.raises(CourseError, match="is not a quality classifier"):
        load_quality(tmp_path / "other.npz")


def test_webtext_filters_by_the_score_and_masks(tmp_path: Path) -> None:
    save_quality(train_quality(DRY, CHATTY), tmp_path / "quality.npz")
    dry = "京都は日本の都市である。人口は百万人である。電話は03-1234-5678である。"
    chatty = "昨日はうどんを食べたよ！！最高においしかったですね〜。また明日も食べます。"
    (tmp_path / "web.txt").write_text(f"{dry}\n\n{chatty}\n", encoding="utf8")
    filters = FilterConfig(min_chars=10, quality=tmp_path / "quality.npz", min_quality=0, mask_personal=True)
    report = clean_webtext(tmp_path / "web.txt", tmp_path / "out.jsonl", WebtextConfig(filters=filters))
    assert report.removed["quality"].count == 1 and report.limits["quality"] == "< 0.0"
    assert report.counts["phone numbers masked"] == 1
    (left,) = map(orjson.loads, (tmp_path / "out.jsonl").read_bytes().splitlines())
    assert left["text"] == dry.replace("03-1234-5678", "<電話番号>")


def test_labels_name_documents_that_pass_the_filters(tmp_path: Path) -> None:
    clean_webtext(data("webtext-sample.txt.xz"), tmp_path / "web.jsonl")
    passed = {orjson.loads(line)["id"] for line in (tmp_path / "web.jsonl").read_bytes().splitlines()}
    rows = list(csv.DictReader(data("quality-labels.csv").read_text(encoding="utf8").splitlines()))
    assert len({row["id"] for row in rows}) == len(rows) == 150
    assert {row["id"] for row in rows} <= passed
    assert {row[column] for row in rows for column in ("label", "earlier")} == {"0", "1"}
