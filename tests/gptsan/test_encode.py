"""`course gptsan encode`: lists, patterns and JSON Lines, the same bytes for any number of workers, errors."""

import json
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from course_lib.documents import read_batches
from course_lib.errors import CourseError, UsageError
from course_lib.files import FILE_LIST
from course_lib.gptsan.config import EncodeConfig
from course_lib.gptsan.encode import encode
from course_lib.gptsan.examples import Examples
from course_lib.gptsan.swe import load
from course_lib.gptsan.vocabulary import build_vocabulary

TALES = [
    "むかしむかし、ある所におじいさんがいました。\n山へ行きました！",
    "明日は晴れ。\n\n気温は二十度です。",
    "豆腐を切る。鍋に入れる。\n煮る。",
    "試合は三対二でした！！！\n本当ですか？",
]
SMALL = EncodeConfig(num_context=16)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabulary") / "swe"
    build_vocabulary(TALES * 3, 480, folder, 0.0)
    return folder


@pytest.fixture
def tales(tmp_path: Path) -> Path:
    """list.csv of eight documents in four classes, in a folder with other text files too."""
    rows = ["filename,fileid"]
    for number in range(8):
        (tmp_path / f"t{number}.txt").write_text("\n".join([TALES[number % 4]] * (1 + number)) + "\n", encoding="utf8")
        rows.append(f"t{number}.txt,{number % 4}")
    (tmp_path / "other.txt").write_text("別の文。", encoding="utf8")
    (tmp_path / "list.csv").write_text("\n".join(rows), encoding="utf8")
    return tmp_path / "list.csv"


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != FILE_LIST}


def test_a_list_gives_classes(tales: Path, tokenizer: Path, tmp_path: Path) -> None:
    report = encode(str(tales), tokenizer, tmp_path / "out", SMALL)
    assert sorted(content(tmp_path / "out")) == ["document.npy", "encoding.json", "i.npy", "x.npy", "y.npy"]
    examples, swe = Examples(tmp_path / "out"), load(tokenizer / "vocab.txt", tokenizer / "emoji.json")
    assert (report["documents"], report["examples"]) == (8, len(examples))
    ids: dict[int, list[int]] = {}
    for example in examples:
        real = example["x"][example["x"] != swe.nottoken].tolist()
        labels = example["y"][example["y"] >= 0].tolist()  # the last one is in the next example, or the end
        ids.setdefault(int(example["i"]), []).extend(labels[: len(real) - 2 - (real[-1] == swe.eot)])
        assert example["x"][:2].tolist() == [swe.sot, swe.seg]
    for label, tale in enumerate(TALES):
        whole = (tale + "\n") * (1 + label + 5 + label)  # its two documents, in some order
        assert swe.decode(ids[label]).replace("\n", "") == whole.replace("\n", "")
    assert report["classes"] == {label: int((examples.arrays["i"] == label).sum()) for label in range(4)}
    encoding = (tmp_path / "out" / "encoding.json").read_text()
    assert json.loads(encoding)["tokenizer"]["vocab.txt"] == sha256((tokenizer / "vocab.txt").read_bytes()).hexdigest()
    assert str(tmp_path) not in encoding


def test_a_pattern_gives_running_numbers(tales: Path, tokenizer: Path, tmp_path: Path) -> None:
    report = encode(str(tales.parent / "*.txt"), tokenizer, tmp_path / "out", SMALL)
    examples = Examples(tmp_path / "out")
    assert report["documents"] == 9 and report["classes"] is None
    assert [int(example["i"]) for example in examples] == list(range(report["examples"]))
    with pytest.raises(UsageError, match=r"\*.text: no such file"):
        encode(str(tmp_path / "*.text"), tokenizer, tmp_path / "none", SMALL)


def test_json_lines_are_documents(tales: Path, tokenizer: Path, tmp_path: Path) -> None:
    """The same texts, one to a file and many to a file, give the same examples."""
    paths = sorted(tales.parent.glob("t*.txt"))
    encode(paths, tokenizer, tmp_path / "files", SMALL)
    lines = [json.dumps({"id": path.name, "text": path.read_text(encoding="utf8")}) for path in paths]
    (tmp_path / "all.jsonl").write_text("\n\n".join(lines) + "\n")
    report = encode(str(tmp_path / "*.jsonl"), tokenizer, tmp_path / "lines", SMALL)
    one, other = Examples(tmp_path / "files"), Examples(tmp_path / "lines")
    assert sorted(example["x"].tolist() for example in one) == sorted(example["x"].tolist() for example in other)
    assert report["documents"] == len(set(other.arrays["document"].tolist())) == 8


def test_the_same_for_any_number_of_workers(
    tales: Path, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("course_lib.gptsan.encode.BATCH", 200)  # several groups of documents
    for name, workers, seed in ("one", 1, 7), ("two", 2, 7), ("other", 1, 8):
        encode(str(tales), tokenizer, tmp_path / name, EncodeConfig(num_context=12, seed=seed), workers)
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert content(tmp_path / "one") != content(tmp_path / "other")


def test_a_long_document_comes_in_pieces(tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "long.txt").write_text("\n\n".join(TALES * 20), encoding="utf8")
    whole = encode([tmp_path / "long.txt"], tokenizer, tmp_path / "whole", SMALL)
    monkeypatch.setattr("course_lib.gptsan.encode.read_batches", partial(read_batches, size=1000))
    pieces = encode([tmp_path / "long.txt"], tokenizer, tmp_path / "pieces", SMALL)
    assert pieces["documents"] == whole["documents"] == 1
    assert whole["examples"] < pieces["examples"] < whole["examples"] + 20  # a piece ends with an example of its own


def test_documents_without_text_have_no_example(tales: Path, tokenizer: Path, tmp_path: Path) -> None:
    tales.with_name("t0.txt").write_text(" \n\n")
    assert encode(str(tales), tokenizer, tmp_path / "out", SMALL)["documents"] == 7
    with pytest.raises(CourseError, match="no text"):
        encode([tales.with_name("t0.txt")], tokenizer, tmp_path / "none", SMALL)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("filename,fileid\nt0.txt,0\nt9.txt,1", "line 3: .*t9.txt: no such file"),
        ("filename,fileid\nt0.txt,tale", "line 2: .*'tale'"),
        ("filename,fileid\nt0.txt,0\n\n./t0.txt,1", "line 4: ./t0.txt is listed twice"),
        ("filename,fileid\nt0.txt,0\nlatin.txt,0", "latin.txt, line 2: not UTF-8"),
        ("filename,fileid\nt0.txt,0\nlines.jsonl,0", "lines.jsonl, line 2: expected an object"),
    ],
)
def test_wrong_input_is_one_line(rows: str, message: str, tales: Path, tokenizer: Path, tmp_path: Path) -> None:
    encode(str(tales), tokenizer, tmp_path / "out", SMALL)
    before = content(tmp_path / "out")
    (tmp_path / "lines.jsonl").write_text('{"text": "a"}\n["a"]\n')
    (tmp_path / "latin.txt").write_bytes(b"first\nna\xefve\n")
    tales.write_text(rows)
    with pytest.raises(CourseError, match=message) as error:
        encode(str(tales), tokenizer, tmp_path / "out", SMALL)
    assert "\n" not in str(error.value)
    assert content(tmp_path / "out") == before and not list(tmp_path.glob(".out*"))


def test_a_list_may_come_from_a_spreadsheet(tales: Path, tokenizer: Path, tmp_path: Path) -> None:
    encode(str(tales), tokenizer, tmp_path / "plain", SMALL)
    tales.write_bytes(b"\xef\xbb\xbf" + tales.read_bytes().replace(b"\n", b"\r\n"))
    for path in tmp_path.glob("t*.txt"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    encode(str(tales), tokenizer, tmp_path / "windows", SMALL)
    plain, windows = content(tmp_path / "plain"), content(tmp_path / "windows")
    assert all(plain[name] == windows[name] for name in plain if name != "encoding.json")


def test_every_line_break_in_a_text_is_a_line_end(tokenizer: Path, tmp_path: Path) -> None:
    for name, end in (("n", "\n"), ("rn", "\r\n"), ("r", "\r"), ("ls", "\u2028"), ("nel", "\x85"), ("ff", "\x0c")):
        rows = [json.dumps({"text": tale.replace("\n", end)}, ensure_ascii=False) + "\n" for tale in TALES]
        (tmp_path / f"{name}.jsonl").write_text("".join(rows), encoding="utf8", newline="")
        encode([tmp_path / f"{name}.jsonl"], tokenizer, tmp_path / name, SMALL)
        assert content(tmp_path / name) == content(tmp_path / "n")
    (tmp_path / "n.txt").write_text("\n".join(TALES), encoding="utf8", newline="\n")
    (tmp_path / "r.txt").write_text("\n".join(TALES), encoding="utf8", newline="\r")
    for name in ("n", "r"):
        encode([tmp_path / f"{name}.txt"], tokenizer, tmp_path / f"{name}-txt", SMALL)
    assert content(tmp_path / "r-txt") == content(tmp_path / "n-txt")
