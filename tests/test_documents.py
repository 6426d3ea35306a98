"""Documents in batches of lines, and what is said of lines that are none."""

import bz2
import gzip
import json
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from course_lib import documents
from course_lib.errors import CourseError
from hypothesis import given
from hypothesis import strategies as st

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff"), min_size=1).filter(str.strip)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(CourseError) as caught:
        list(documents.read_texts(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@given(st.lists(TEXT, min_size=1), st.integers(1, 100))
def test_json_lines_in_any_batches_give_every_text_in_order(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "x.jsonl"
    write(path, "".join(json.dumps({"id": 1, "text": text}, ensure_ascii=False) + "\n" for text in texts))
    batches = list(documents.read_batches(path, size))
    assert [text for batch in batches for text in documents.texts(batch)] == texts
    assert b"".join(line for batch in batches for line in batch.lines) == path.read_bytes()
    assert [batch.first for batch in batches] == [
        1 + sum(len(b.lines) for b in batches[:i]) for i in range(len(batches))
    ]
    assert all(batch.size == sum(map(len, batch.lines)) for batch in batches)
    assert all(batch.size >= size for batch in batches[:-1])
    assert all(batch.size - len(batch.lines[-1]) < size for batch in batches)


@given(st.lists(st.lists(LINE, min_size=1), min_size=1), st.integers(1, 100), st.sampled_from(["\n", "\r\n"]))
def test_plain_text_in_any_batches_gives_every_document_whole(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[list[str]], size: int, end: str
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "x.txt", (end + end).join(end.join(block) for block in blocks))
    size = max(size, path.stat().st_size // documents.LONGEST + 1)  # no document is longer than a batch may get
    found = [text for batch in documents.read_batches(path, size) for text in documents.texts(batch)]
    assert found == ["\n".join(block) for block in blocks]


@pytest.mark.parametrize("ending", PACK)
def test_compressed_documents(tmp_path: Path, ending: str) -> None:
    plain = write(tmp_path / f"x.txt{ending}", PACK[ending]("\ufeff一\n二\n\n \t\n\n三\n".encode()))
    lines = write(tmp_path / f"x.jsonl{ending}", PACK[ending]('{"text": "一"}\n\n{"text": ""}\n'.encode()))
    assert list(documents.read_texts(plain)) == ["一\n二", "三"]
    assert list(documents.read_texts(lines)) == ["一", ""]


@pytest.mark.parametrize(
    ("line", "wanted"), [(b'{"text": "\xff"}', "not readable as JSON"), (b'{"text": 3}', "expected an object")]
)
def test_a_bad_json_line_is_named_by_its_number_in_the_file(tmp_path: Path, line: bytes, wanted: str) -> None:
    path = write(tmp_path / "x.jsonl", b'{"text": "good"}\n\n' * 2 + line + b"\n")
    assert refusal(path).startswith(f"{path}, line 5: {wanted}")
    third = list(documents.read_batches(path, 1))[4]
    with pytest.raises(CourseError, match="line 5: "):  # also from a later batch
        list(documents.texts(third))


@pytest.mark.parametrize(
    ("written", "text", "replaced"),
    [
        (r"前\ud800後", "前\ufffd後", 1),
        (r"\uDC00\uDBFF\n", "\ufffd\ufffd\n", 2),
        # A high half before a pair.
        (r"\ud83d\ud83d\ude00", "\ufffd😀", 1),
        (r"\uD83D\uDE00\ud7ff\ue000", "😀\ud7ff\ue000", 0),
        # An escaped backslash, and no escape sequence.
        (r"\\ud800\\\ud800", "\\ud800\\\ufffd", 1),
        (r"�あ", "�あ", 0),
    ],
)
def test_a_lone_surrogate_is_replaced_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str, text: str, replaced: int
) -> None:
    path = write(tmp_path / "x.jsonl", f'{{"text": "前"}}\n\n{{"text": "{written}"}}\n')
    assert list(documents.read_texts(path)) == ["前", text] == documents.sample_texts(path)
    line = f"{path}: {replaced} lone surrogates replaced by U+FFFD, the first one in line 3\n"
    assert capsys.readouterr().err == line * 2 * bool(replaced)


def test_a_lone_surrogate_moves_no_place_in_a_message_and_hides_none(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"\\ud800": "", "text": 3}\n')
    assert "expected an object with a string" in refusal(path)
    assert refusal(write(path, '{"text": "\\ud800" x\n')) == refusal(write(path, '{"text": "\\ufffd" x\n'))


def test_a_sample_has_no_lone_surrogates(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"text": "\\ud800あ"}\n' * 1000)
    assert set(documents.sample_texts(path, 2000)) == {"\ufffdあ"}


def test_plain_text_that_is_not_utf8_is_named_by_line_and_byte(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", b"one\n\ntwo\nab\xffc\n")
    assert "line 4: not UTF-8 at byte 2" in refusal(path)
    for codec in ("cp932", "euc-jp", "utf-16"):
        path.write_bytes("ひらがな\n".encode(codec))
        assert f"iconv -f {codec.upper()}" in refusal(path)


@pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2"])
@pytest.mark.parametrize("tail", [b"", b"x" * 20])
def test_a_broken_archive_is_named_after_its_good_lines(tmp_path: Path, ending: str, tail: bytes) -> None:
    packed = PACK[ending]("".join(f'{{"text": "{i * 7919 % 100_003}"}}\n' for i in range(60_000)).encode())
    path = write(tmp_path / f"x.jsonl{ending}", packed[:-20] + tail)
    found = 0
    with pytest.raises(CourseError, match=f"{path}: (broken|truncated) {ending[1:]} data near byte [0-9]+"):
        for batch in documents.read_batches(path, 10_000):
            found += len(batch.lines)
    assert 0 < found < 60_000 or ending == ".bz2"


def test_plain_text_without_empty_lines_is_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", "一行\n" * 1000)
    batches = list(documents.read_batches(path, 100))
    assert max(batch.size for batch in batches) <= 100 * documents.LONGEST + 7
    assert "\n".join(text for batch in batches for text in documents.texts(batch)) == "\n".join(["一行"] * 1000)


def test_a_line_that_is_too_long_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    content = b'{"text": "short"}\n\n\n{"text": "' + b"x" * (3 * documents.LONGEST_LINE) + b'"}\n'
    path = write(tmp_path / "x.jsonl.xz", lzma.compress(content, preset=0))
    del content
    tracemalloc.start()
    message = refusal(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "line 4: longer than 16.8 MB" in message
    assert peak < 4 * documents.LONGEST_LINE


def numbered(path: Path, sizes: list[int]) -> Path:
    """A file of documents, of which each begins with its number."""
    lines = (json.dumps({"text": f"{number} " + "x" * size}) + "\n" for number, size in enumerate(sizes))
    return write(path, "".join(lines))


def test_a_sample_is_spread_evenly_and_has_the_wanted_size(tmp_path: Path) -> None:
    sample = documents.sample_texts(numbered(tmp_path / "x.jsonl", [400] * 20_000), 1 << 20)
    numbers = [int(text.split()[0]) for text in sample]
    assert sum(map(len, sample)) == pytest.approx(1 << 20, rel=0.05)
    # an eighth of the file: as many documents of each eighth
    shares = [sum(at * 2500 <= number < (at + 1) * 2500 for number in numbers) / len(numbers) for at in range(8)]
    assert shares == pytest.approx([1 / 8] * 8, abs=0.01)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=300), st.integers(1, 20_000))
def test_a_sample_holds_whole_documents_in_order_and_none_twice(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], wanted: int
) -> None:
    path = numbered(tmp_path_factory.getbasetemp() / "sample.jsonl", sizes)
    sample = documents.sample_texts(path, wanted)
    numbers = [int(text.split()[0]) for text in sample]
    texts = list(documents.read_texts(path))
    assert sample == [texts[number] for number in numbers] and numbers == sorted(set(numbers))
    # The last line of a part may be longer than what is missing; the next part takes less.
    lines = path.read_bytes().splitlines(keepends=True)
    size = sum(len(lines[number]) for number in numbers)
    assert size < wanted + max(map(len, lines))
