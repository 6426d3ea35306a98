"""The dump as a stream: forms, worker counts, and every way a dump can be broken."""

import bz2
import gzip
import lzma
import re
from pathlib import Path

import orjson
import pytest
from course_lib.corpus.config import WikipediaConfig
from course_lib.corpus.report import REPLACED, CorpusReport
from course_lib.corpus.wikipedia import extract
from course_lib.errors import CourseError
from course_lib.workspace import products as workspace

from tests.corpus.dumps import export, multistream

PROSE = "これは十分に長い本文である。" * 12
PAGES = [(f"記事{i}", f"'''記事{i}'''は{i}番目の記事である。{PROSE}") for i in range(40)]
XML = export(PAGES)


def run(folder: Path, name: str, content: bytes, workers: int = 1) -> tuple[bytes, CorpusReport]:
    (folder / name).write_bytes(content)
    report = extract(folder / name, folder / "out.jsonl", WikipediaConfig(), workers)
    return (folder / "out.jsonl").read_bytes(), report


def fails(folder: Path, name: str, content: bytes) -> str:
    """The error line of an extraction that leaves the earlier product as it was."""
    (folder / "out.jsonl").write_bytes(b"earlier product")
    with pytest.raises(CourseError) as caught:
        run(folder, name, content)
    assert (folder / "out.jsonl").read_bytes() == b"earlier product"
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_all_forms_and_worker_counts_give_the_same_bytes(tmp_path: Path) -> None:
    raw = XML.encode()
    expected, report = run(tmp_path, "a.xml", raw)
    assert [orjson.loads(line)["title"] for line in expected.splitlines()] == [title for title, _ in PAGES]
    assert (report.documents_in, report.documents_out) == (40, 40)
    # Streams cut in the middle of pages.
    blind = b"".join(bz2.compress(raw[i : i + 777]) for i in range(0, len(raw), 777))
    forms = {
        "b.xml.gz": gzip.compress(raw),
        "c.xml.bz2": bz2.compress(raw),
        "d.xml.bz2": multistream(XML, 7),
        "e.xml.bz2": blind,
        "g.xml.xz": lzma.compress(raw[:5000]) + lzma.compress(raw[5000:]),
    }
    for name, content in forms.items():
        assert run(tmp_path, name, content)[0] == expected, name
    assert run(tmp_path, "d.xml.bz2", forms["d.xml.bz2"], workers=2)[0] == expected


def test_pieces_smaller_than_a_page_are_stitched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = run(tmp_path, "a.xml", XML.encode())
    monkeypatch.setattr("course_lib.corpus.dump.CHUNK", 97)  # bytes a piece: pages, tags and characters are all torn
    assert run(tmp_path, "b.xml", XML.encode())[0] == expected


def test_only_articles_pass(tmp_path: Path) -> None:
    others = [
        ("転送", "#REDIRECT [[記事1]]"), ("転送二", "#転送 [[記事1]]"), ("ノート:記事1", PROSE), ("Template:t", PROSE),
        ("意味", f"{PROSE}\n{{{{aimai}}}}"), ("短い", "短い。"),
    ]  # fmt: skip
    lines, report = run(tmp_path, "a.xml", export([*PAGES[:3], *others]).encode())
    assert len(lines.splitlines()) == 3
    removed = {reason: removed.count for reason, removed in report.removed.items()}
    assert removed == {"redirect": 2, "other_namespace": 2, "disambiguation": 1, "too_short": 1}


def test_a_page_that_is_too_long_is_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_lib.corpus.wikipedia.LONGEST_TEXT", 5000)
    lines, report = run(tmp_path, "a.xml", export([*PAGES[:3], ("長い", "あ" * 5001), ("可", "あ" * 5000)]).encode())
    assert [orjson.loads(line)["title"] for line in lines.splitlines()] == ["記事0", "記事1", "記事2", "可"]
    assert (report.removed["too_long"].count, report.removed["too_long"].characters) == (1, 5001)


@pytest.mark.parametrize("shared", ["streams", "pages"])
def test_truncated_and_broken_archives_are_named_with_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str
) -> None:
    monkeypatch.setattr("course_lib.corpus.dump.SMALL_FILE", 0 if shared == "streams" else 8 << 20)
    packed = multistream(XML, 5)
    message = fails(tmp_path, "a.xml.bz2", packed[: len(packed) * 2 // 3])
    offset = int(re.findall(r"byte (\d+)", message)[0])
    assert "truncated" in message
    assert packed[offset:].startswith(b"BZh") if shared == "streams" else offset == len(packed) * 2 // 3
    broken = bytearray(packed)
    broken[len(packed) // 2 : len(packed) // 2 + 9] = b"\0" * 9
    message = fails(tmp_path, "b.xml.bz2", bytes(broken))
    assert "broken bz2 data" in message and re.search(r"byte \d+", message)
    zipped = gzip.compress(XML.encode(), mtime=0)
    message = fails(tmp_path, "c.xml.gz", zipped[: len(zipped) - 200])
    assert f"truncated gz data near byte {len(zipped) - 200}" in message


def test_streams_and_pages_shared_out_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = run(tmp_path, "a.xml.bz2", multistream(XML, 3))
    monkeypatch.setattr("course_lib.corpus.dump.SMALL_FILE", 0)
    monkeypatch.setattr("course_lib.corpus.dump.GROUP", 100)
    monkeypatch.setattr("course_lib.corpus.dump.CHUNK", 3000)
    assert run(tmp_path, "a.xml.bz2", multistream(XML, 3))[0] == expected
    assert run(tmp_path, "a.xml.bz2", multistream(XML, 3), workers=2)[0] == expected
    monkeypatch.setattr("course_lib.corpus.dump.LONG_STREAM", 2000)
    assert run(tmp_path, "b.xml.bz2", bz2.compress(XML.encode()))[0] == expected


def test_broken_xml_names_the_page(tmp_path: Path) -> None:
    message = fails(tmp_path, "a.xml", XML.replace("<title>記事9</title>", "<title>記事9<b></title>").encode())
    assert "broken XML in the page" in message and "記事9" in message
    message = fails(tmp_path, "b.xml", XML[: XML.index("記事7</title>") + 40].encode())
    assert "'記事7' has no </page>" in message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xml", b"no dump at all\n" * 99, "no <page> found"),
        ("a.xml.bz2", b"no bz2", "broken bz2 data near byte"),
        ("a.7z", b"x", "unknown ending"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    assert message in fails(tmp_path, name, content)


def test_a_long_line_without_pages_needs_no_memory_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_lib.corpus.wikipedia.LONGEST_PAGE", 8 << 20)
    assert "without a whole <page>" in fails(tmp_path, "a.xml", b"<page>" + b"a" * 50_000_000)


def test_bundled_sample_has_what_the_course_promises(tmp_path: Path) -> None:
    report = extract(workspace.data("jawiki-sample.xml.bz2"), tmp_path / "out.jsonl", WikipediaConfig(), 1)
    assert report.documents_out >= 300
    # The characters that came in are those that went out, of removed pages, and of markup.
    removed = sum(each.characters for each in report.removed.values())
    assert report.characters_in == report.characters_out + removed + sum(report.counts.values())
    texts = [orjson.loads(line)["text"] for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert sum(len(text.encode()) for text in texts) >= 250_000
    assert {"redirect", "other_namespace", "disambiguation"} <= set(report.removed)


def history(*revisions: tuple[str, str, str], name: str = "東京") -> str:
    """A dump of one page with revisions of (number, time, text); None as text is a hidden one."""
    texts = "".join(
        f"<revision><id>{number}</id><parentid>1</parentid><timestamp>{time}</timestamp>"
        f"<contributor><username>甲</username><id>99</id></contributor>{text}</revision>\n"
        for number, time, text in revisions
    )
    start, end = export([(name, "@")]).split("<revision>")[0], "</page>\n</mediawiki>\n"
    return f"{start}{texts}{end}"


def said(text: str) -> str:
    return f'<text xml:space="preserve">{text}{PROSE}</text>'


HIDDEN = '<text deleted="deleted" />'
OLD, NEW = "2004-01-01T00:00:00Z", "2024-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("revisions", "newest"),
    [
        ([("1", OLD, said("古い。")), ("2", NEW, said("新しい。"))], "新しい。"),
        # By time, not by place or number.
        ([("9", NEW, said("新しい。")), ("3", OLD, said("古い。"))], "新しい。"),
        # In the same second, by number.
        ([("10", NEW, said("新しい。")), ("9", NEW, said("古い。"))], "新しい。"),
        # A hidden text is empty, wherever it stands.
        ([("1", OLD, said("古い。")), ("2", NEW, HIDDEN)], "古い。"),
        ([("1", OLD, HIDDEN), ("2", NEW, said("新しい。"))], "新しい。"),
        ([("1", OLD, said("唯一の版。"))], "唯一の版。"),
    ],
)
@pytest.mark.parametrize("chunk", [97, 1 << 20])
def test_of_a_history_the_newest_revision_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revisions: list[tuple[str, str, str]], newest: str, chunk: int
) -> None:
    monkeypatch.setattr("course_lib.corpus.dump.CHUNK", chunk)
    lines, report = run(tmp_path, "a.xml", history(*revisions).encode())
    assert orjson.loads(lines) == {"id": "1", "title": "東京", "text": newest + PROSE}
    assert (report.documents_in, report.characters_in) == (1, len(newest + PROSE))


def test_a_page_whose_newest_text_is_empty_or_all_hidden_is_too_short(tmp_path: Path) -> None:
    for revisions in ([("1", OLD, said("古い。")), ("2", NEW, "<text />")], [("1", OLD, HIDDEN), ("2", NEW, HIDDEN)]):
        lines, report = run(tmp_path, "a.xml", history(*revisions).encode())
        assert lines == b"" and report.removed["too_short"].count == 1


def test_a_history_longer_than_any_page_needs_no_memory_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revisions = [(str(i), f"{2004 + i % 7}-01-01T00:00:00Z", said(f"版{i}。" + "あ" * 20_000)) for i in range(300)]
    xml = history(*revisions).encode()
    expected, _ = run(tmp_path, "a.xml", xml)
    # Of the last year, the last one.
    assert orjson.loads(expected)["text"].startswith("版293。")
    monkeypatch.setattr("course_lib.corpus.wikipedia.LONGEST_PAGE", 3 << 20)
    assert len(xml) > 5 * (3 << 20)
    for name, content in {"b.xml": xml, "c.xml.gz": gzip.compress(xml, 1), "d.xml.bz2": bz2.compress(xml)}.items():
        assert run(tmp_path, name, content, workers=2)[0] == expected, name


def without_ns(xml: str) -> str:
    """A dump as MediaWiki wrote it before format 0.6."""
    return re.sub(r" *<ns>.*?</ns>\n", "", xml)


TITLES = [
    "ミッション:インポッシブル",
    "Wikipedia:井戸端",
    "東京",
    "ノート:東京",
    "Re:ゼロ",
    "ノート",
    "利用者:甲",
    ":コロン",
]
ARTICLES = ["ミッション:インポッシブル", "東京", "Re:ゼロ", "ノート", ":コロン"]


def test_a_dump_without_ns_is_judged_by_titles_and_its_own_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xml = export((title, PROSE) for title in TITLES)
    expected, report = run(tmp_path, "a.xml", xml.encode())
    assert [orjson.loads(line)["title"] for line in expected.splitlines()] == ARTICLES
    monkeypatch.setattr("course_lib.corpus.dump.CHUNK", 3000)
    found, counted = run(tmp_path, "a.xml", without_ns(xml).encode())
    assert found == expected and counted == report
    # Workers see pieces without the header of the dump.
    monkeypatch.setattr("course_lib.corpus.dump.SMALL_FILE", 0)
    monkeypatch.setattr("course_lib.corpus.dump.GROUP", 100)
    assert run(tmp_path, "b.xml.bz2", multistream(without_ns(xml), 2), workers=2)[0] == expected
    # Names of another dump: there, ノート is none.
    other = without_ns(xml).replace(">ノート</namespace>", ">Talk</namespace>")
    lines, _ = run(tmp_path, "a.xml", other.encode())
    assert [orjson.loads(line)["title"] for line in lines.splitlines()] == [*ARTICLES[:2], "ノート:東京", *ARTICLES[2:]]


def test_a_dump_without_ns_and_without_namespaces_is_an_error(tmp_path: Path) -> None:
    xml = re.sub("<siteinfo>.*</siteinfo>", "", without_ns(XML), flags=re.S)
    assert "pages without <ns>, and no <namespaces> before them" in fails(tmp_path, "a.xml", xml.encode())
    # With <ns>, it needs none.
    bare = re.sub("<siteinfo>.*</siteinfo>", "", XML, flags=re.S)
    assert run(tmp_path, "a.xml", bare.encode())[1].documents_out == 40


@pytest.mark.parametrize(
    ("written", "shown", "replaced"),
    [
        ("前&#x0E;後", "前\ufffd後", 1),
        ("前\x01&#0;&#31;後", "前" + "\ufffd" * 3 + "後", 3),
        ("前\ufffe&#xFFFF;&#65535;後", "前" + "\ufffd" * 3 + "後", 3),
        ("前&#xD800;後&#99999999999;", "前\ufffd後\ufffd", 2),
        ("&#xD83D;&#xDE00;後", "😀後", 0),
        ("&#x3042;&#65;&#9;後", "あA 後", 0),
    ],
)
def test_a_character_that_xml_forbids_is_replaced_and_counted(
    tmp_path: Path, written: str, shown: str, replaced: int
) -> None:
    xml = export([*PAGES[:3], ("題", f"@{PROSE}"), *PAGES[3:]]).replace("@", written)
    lines, report = run(tmp_path, "a.xml", xml.encode())
    articles = [orjson.loads(line) for line in lines.splitlines()]
    assert articles[3]["text"] == shown + PROSE and len(articles) == 41
    assert report.counts.get(REPLACED, 0) == replaced
    assert (f"; {replaced} characters replaced by U+FFFD" in report.summary()) == bool(replaced)


def test_a_raw_surrogate_and_a_bad_title_are_replaced_but_broken_xml_is_an_error(tmp_path: Path) -> None:
    raw = export([("題\x02", f"@{PROSE}")]).encode().replace(b"@", "前\ud800後".encode("utf8", "surrogatepass"))
    lines, report = run(tmp_path, "a.xml", raw)
    assert orjson.loads(lines) == {"id": "1", "title": "題\ufffd", "text": f"前\ufffd後{PROSE}"}
    assert report.counts[REPLACED] == 2
    assert "broken XML in the page '題" in fails(tmp_path, "a.xml", raw.replace(b"@", b"").replace(b"</text>", b"</b>"))


def test_several_dumps_are_one_product(tmp_path: Path) -> None:
    parts = [export(PAGES[:15]), export(PAGES[15:])]
    each = [run(tmp_path, f"{number}.xml", part.encode())[0] for number, part in enumerate(parts)]
    report = extract([tmp_path / "0.xml", tmp_path / "1.xml"], tmp_path / "both.jsonl")
    assert (tmp_path / "both.jsonl").read_bytes() == b"".join(each) and report.documents_out == 40
