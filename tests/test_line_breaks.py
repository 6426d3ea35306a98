"""Line breaks: what ends a line of a file, what breaks a line of a text, and that all commands agree."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from course_lib.checkpoints.text_tokenizer import TextTokenizer
from course_lib.corpus.webtext import clean_webtext
from course_lib.corpus.wikitext import to_text
from course_lib.documents import lines_of_text, read_texts, with_newlines
from course_lib.evaluation.scoring import one_line
from course_lib.files import CHUNK
from course_lib.japanese import normalize
from course_lib.japanese.pipeline import segment_file
from course_lib.prefix.data import pack
from course_lib.pretrain.text_codec import TextCodec
from course_lib.subword import text as training_text
from hypothesis import given
from hypothesis import strategies as st

from tests.corpus.test_webtext import BREAD, RIVER

# One break each.
BREAKS = ("\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
LINES = ["見出し", "一行目の文", "二行目の文", "三行目の文"]


def jsonl(path: Path, *texts: str) -> Path:
    path.write_text(
        "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts), "utf8", newline=""
    )
    return path


def segmented(source: Path) -> str:
    segment_file(source, target := source.with_suffix(".lines"))
    return target.read_text(encoding="utf8").replace(" ", "")


def cleaned(content: str, folder: Path) -> list[str]:
    (folder / "web.txt").write_bytes(content.encode())
    clean_webtext(folder / "web.txt", folder / "web.jsonl")
    return list(read_texts(folder / "web.jsonl"))


def test_a_text_is_broken_where_pythons_splitlines_breaks_it() -> None:
    for code in range(sys.maxunicode + 1):
        if not 0xD800 <= code < 0xE000:
            text = f"a{chr(code)}b"
            assert with_newlines(text).split("\n") == text.splitlines()
    assert with_newlines("a\r\n\rb\n\rc") == "a\n\nb\n\nc"


@given(st.text("ab\r\n", max_size=20), st.integers(-3, 3))
def test_a_return_alone_ends_a_line_wherever_the_file_is_cut(text: str, shift: int) -> None:
    content = b"x" * (CHUNK + shift - 10) + text.encode()
    found = lines_of_text(io.BufferedReader(io.BytesIO(content), CHUNK)).readlines()
    assert [line.rstrip(b"\r\n") for line in found] == content.splitlines()
    assert b"".join(found).replace(b"\r", b"") == content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert sum(map(len, found)) == len(content)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_text_file_may_have_the_line_ends_of_any_system(tmp_path: Path, end: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(f"\ufeff一つ目の文書{end}二行目{end}{end} {end}二つ目の文書{end}".encode())
    assert list(read_texts(path)) == ["一つ目の文書\n二行目", "二つ目の文書"]
    assert segmented(path) == "一つ目の文書\n二行目\n\n二つ目の文書\n\n"
    assert list(training_text.lines([path])) == ["\ufeff一つ目の文書", "二行目", " ", "二つ目の文書"]
    assert cleaned(f"{RIVER}\n\n{BREAD}".replace("\n", end), tmp_path) == [RIVER, BREAD]


def test_a_long_file_with_returns_alone_is_read_in_batches(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("一行です。\r二行です。\r\r".encode() * 700_000)
    assert sum(1 for _ in read_texts(tmp_path / "a.txt")) == 700_000


@pytest.mark.parametrize("end", BREAKS)
def test_every_break_in_a_text_is_one_in_every_command(tmp_path: Path, end: str) -> None:
    text, newlines = end.join(LINES), "\n".join(LINES)
    path = jsonl(tmp_path / "a.jsonl", text, f"{text}{end}{end}終わり")
    # A JSON Lines file is never cut there.
    assert list(read_texts(path)) == [text, f"{text}{end}{end}終わり"]
    assert segmented(path) == f"{newlines}\n\n{newlines}\n終わり\n\n"
    assert list(training_text.sentences([path])) == [*LINES, *LINES, "終わり"]
    assert normalize(text) == newlines
    assert one_line(text) == "".join(LINES)
    assert to_text(f"== 節 ==\n{text}", "題").split("\n") == ["節", *LINES]
    assert cleaned(RIVER.replace("\n", end), tmp_path) == [RIVER]
    assert list(pack(text, "", 5, lambda line: [0] * len(line))) == [[0] * len(line) for line in LINES]


@pytest.mark.parametrize("end", BREAKS)
def test_a_tokenizer_of_somebody_else_gets_newlines(end: str) -> None:
    for vocabulary, line_break in (({}, "\n"), ({"<NL>": 1}, "<NL>")):
        tokenizer = TextTokenizer(lambda text: [1], vocabulary, {}, is_lower_case=False)
        assert tokenizer.written(f"問い{end}答え") == f"問い{line_break}答え"
    assert TextCodec(SimpleNamespace(), None, tokenizer.encode).shown(f"問い{end}答え") == "問い\n答え"


def test_other_characters_break_no_line(tmp_path: Path) -> None:
    text = "一\x1f二\x08三\u200b四\u00a0五\u3000六\u2060七"
    assert with_newlines(text) == text
    assert segmented(jsonl(tmp_path / "a.jsonl", text)) == "一二三四五六七\n\n"
