import json
import lzma
from pathlib import Path

import pytest
from course_lib.errors import CourseError
from course_lib.japanese import desegment, normalize, split_sentences
from course_lib.japanese.config import SegmentConfig
from course_lib.japanese.pipeline import segment_file
from course_lib.workspace import products as workspace

TEXTS = ["雨が降った。風も吹いた。", "Visual Studioを使う。\n見出し", "", "終わり。"]


def jsonl(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts), encoding="utf8")
    return path


def test_a_sentence_a_line_and_an_empty_line_between_documents(tmp_path: Path) -> None:
    report = segment_file(jsonl(tmp_path / "in.jsonl", TEXTS), tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text(encoding="utf8") == (
        "雨 が 降った 。\n風 も 吹いた 。\n\nVisual ␣Studio を 使う 。\n見出し\n\n終わり 。\n\n"
    )
    assert (report.documents, report.lines, report.unanalysed) == (4, 5, 0)


def test_a_lone_surrogate_costs_one_character(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [{"text": "雨\ud800と😀が降った。"}, {"text": "終わり。"}]
    source = tmp_path / "in.jsonl"
    # Python writes all three as escape sequences.
    source.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf8")
    assert segment_file(source, tmp_path / "out.txt", workers=2).documents == 2
    segmented = (tmp_path / "out.txt").read_text(encoding="utf8").replace(" ", "")
    assert segmented == "雨\ufffdと😀が降った。\n\n終わり。\n\n"
    assert capsys.readouterr().err == f"{source}: 1 lone surrogates replaced by U+FFFD, the first one in line 1\n"


def test_spaces_may_be_dropped(tmp_path: Path) -> None:
    segment_file(
        jsonl(tmp_path / "in.jsonl", ["AB CD。x\n\ny"]), tmp_path / "out.txt", SegmentConfig(mark_spaces=False)
    )
    assert (tmp_path / "out.txt").read_text(encoding="utf8") == "AB CD 。\nx\ny\n\n"


def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_lib.documents.BATCH", 20_000)
    raw = lzma.decompress(workspace.data("webtext-sample.txt.xz").read_bytes()).decode(errors="ignore")
    source = jsonl(tmp_path / "in.jsonl", raw.split("\n\n"))
    outputs = []
    for workers in (1, 2):
        segment_file(source, tmp_path / f"{workers}.txt", workers=workers)
        outputs.append((tmp_path / f"{workers}.txt").read_bytes())
    assert outputs[0] == outputs[1]
    lines = [line for line in outputs[0].decode().split("\n") if line]
    expected = [sentence for text in raw.split("\n\n") for sentence in split_sentences(normalize(text))]
    assert [desegment(line) for line in lines] == expected


def test_a_bad_line_is_named_and_the_earlier_product_stays(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("earlier")
    (tmp_path / "in.jsonl").write_bytes(b'{"text": "x"}\n{broken\n')
    with pytest.raises(CourseError, match="in.jsonl, line 2"):
        segment_file(tmp_path / "in.jsonl", tmp_path / "out.txt", workers=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.txt"]
    assert (tmp_path / "out.txt").read_text() == "earlier"


def test_several_files_are_segmented_into_one(tmp_path: Path) -> None:
    paths = [tmp_path / "a.txt", tmp_path / "b.jsonl"]
    paths[0].write_text("川へ行った。\n\n猫がいた。\n", encoding="utf8")
    paths[1].write_text('{"text": "雨が降った。"}\n', encoding="utf8")
    for path in paths:
        segment_file(path, path.with_suffix(".lines"))
    report = segment_file(paths, tmp_path / "both.lines")
    each = b"".join(path.with_suffix(".lines").read_bytes() for path in paths)
    assert (tmp_path / "both.lines").read_bytes() == each and report.documents == 3
