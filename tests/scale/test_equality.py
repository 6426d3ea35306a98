"""The stages make of a corpus what the plain functions make of it, byte for byte, for any number of tasks."""

import bz2
import random
import re
from itertools import pairwise
from pathlib import Path

import pytest
from course_lib.corpus import dump
from course_lib.corpus.config import DedupConfig, FilterConfig, WebtextConfig
from course_lib.corpus.dump import read_pieces
from course_lib.corpus.report import write_report
from course_lib.corpus.webtext import clean_webtext
from course_lib.corpus.wikipedia import extract
from course_lib.errors import CourseError
from course_lib.scale import inputs
from course_lib.scale.config import ScaleConfig
from course_lib.scale.run import prepare, run
from course_lib.scale.stages import Clean
from course_lib.scale.text import STAGES, Merge
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.corpus.dumps import export, multistream
from tests.corpus.planted import near_copy
from tests.scale.corpora import in_order, scaled, settings, write_xz

CLEANING = STAGES[: STAGES.index(Clean) + 1]


@pytest.mark.rehearse
def test_the_local_engine(tmp_path: Path, expected: dict[str, bytes]) -> None:
    chosen = settings(tmp_path / "run", tasks=3, workers=2)
    said = run(chosen)
    found = scaled(chosen.output)
    assert [name for name in expected if found[name] != expected[name]] == []
    assert "kept 348 of 376 documents" in said and "tokens.bin" in said

    def modified() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()}

    # Nothing is left to do, and nothing is done.
    before = modified()
    assert run(chosen) == said and modified() == before


@pytest.mark.rehearse
def test_without_near_duplicates_and_with_a_given_tokenizer(
    tmp_path: Path, folder: Path, expected: dict[str, bytes]
) -> None:
    dedup = {"dedup": {"near_duplicates": False}}
    chosen = settings(tmp_path / "run", tasks=2, tokenizer=str(folder / "results" / "tokenizer"), cleaning=dedup)
    prepare(chosen)
    in_order(chosen, STAGES)
    write_report(clean_webtext(Path(chosen.webtext[0]), tmp_path / "plain.jsonl", chosen.cleaning), tmp_path / "plain")
    found = scaled(chosen.output)
    assert found["webtext.report.json"] == (tmp_path / "plain.report.json").read_bytes()
    assert found["tokenizer.json"] == expected["tokenizer.json"]


# Sentences that pass the filters, of which documents are made.
PROSE = [f"{who}は{when}、{where}で{what}。" for who in ("私", "妹", "先生") for when in ("昨日", "春の朝", "夜遅く")
         for where in ("川の近く", "古い駅", "図書館") for what in ("本を読んでいました", "友達と長い話をしました")]  # fmt: skip


@st.composite
def corpora(draw: st.DrawFn) -> list[bytes]:
    """Documents with exact, near and chained repeats, repeated lines, junk, and lines that are not UTF-8."""
    rng = random.Random(draw(st.integers(0, 10**6)))
    made: list[bytes] = []
    for kind in draw(st.lists(st.sampled_from("nnncccxjlu"), min_size=2, max_size=25)):
        fresh = "\n".join("".join(rng.sample(PROSE, 4)) for _ in range(rng.randint(1, 3)))
        earlier = rng.choice(made) if made else fresh.encode()
        if kind == "c":
            made.append(near_copy(earlier.decode(errors="ignore"), rng, 0.02, 0.2).encode())
        else:
            made.append({"n": fresh.encode(), "x": earlier, "j": b"menu | login", "u": b"\xff\xfe\n" + fresh.encode(),
                         "l": earlier.split(b"\n")[0] + b"\n" + fresh.encode()}[kind])  # fmt: skip
    return made


@given(corpora(), st.integers(1, 4), st.sampled_from([1_000, 4_000, 10**6]), st.sampled_from([500, 10**6]))
@examples(max_examples=25)
def test_any_web_text(tmp_path_factory: pytest.TempPathFactory, made: list[bytes], tasks: int, shard: int, longest: int) -> None:  # fmt: skip
    """Two files are one corpus: a repeat in the second is found, and ids go on from the first."""
    folder = tmp_path_factory.mktemp("any")
    cleaning = WebtextConfig(
        max_line_bytes=longest, max_document_bytes=2 * longest, filters=FilterConfig(min_chars=30, max_repetition=1),
        dedup=DedupConfig(num_perm=24, num_bands=8, line_chars=40),
    )  # fmt: skip
    parts = (made[: len(made) // 2], made[len(made) // 2 :])
    sources = [write_xz(folder / f"{number}.txt.xz", part) for number, part in enumerate(parts)]
    write_report(clean_webtext(sources, folder / "plain.jsonl", cleaning), folder / "plain")
    paths = tuple(map(str, sources))
    chosen = ScaleConfig(output=str(folder / "run"), webtext=paths, tasks=tasks, text_shard=shard, cleaning=cleaning)
    prepare(chosen)
    in_order(chosen, CLEANING)
    stage = Merge(chosen)
    names = [f"clean/{one.unit}.jsonl" for one in stage.shards()]
    assert b"".join(map(stage.store.read, names)) == (folder / "plain.jsonl").read_bytes()
    write_report(stage.report("webtext"), folder / "scaled")
    assert (folder / "scaled.report.json").read_bytes() == (folder / "plain.report.json").read_bytes()


def _articles(number: int) -> str:
    return export((f"題名{i}", f"これは{i}番目の記事の本文です。" * (5 + i % 7)) for i in range(number))


def cut_and_extract(path: Path, size: int) -> list[bytes]:
    """The shards of a dump, after a check that their articles are those of the whole dump."""
    plain, shard = path.with_name("plain.jsonl"), path.with_name("shard.xml.bz2")
    extract(path, plain)
    shards, documents = list(inputs.dump_shards(path, size)), b""
    for content in shards:
        shard.write_bytes(content)
        extract(shard, path.with_name("shard.jsonl"))
        documents += path.with_name("shard.jsonl").read_bytes()
    assert documents == plain.read_bytes() and documents.count(b"\n") > 50
    return shards


@pytest.mark.parametrize("form", ["multistream", "one stream", "xml"])
def test_dumps_without_ns_are_cut_with_their_namespaces(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "multistream":
        monkeypatch.setattr(dump, "SMALL_FILE", 0)
        monkeypatch.setattr(dump, "GROUP", 1 << 10)
        monkeypatch.setattr(dump, "CHUNK", 1 << 11)
    monkeypatch.setattr(inputs, "CHUNK", 1 << 10)
    titles = ("ミッション:", "ノート:", "題名")
    xml = export((f"{titles[i % 3]}{i}", f"これは{i}番目の記事の本文です。" * (9 + i % 7)) for i in range(300))
    xml = re.sub(r" *<ns>.*?</ns>\n", "", xml)
    content = multistream(xml, 7) if form == "multistream" else xml.encode()
    path = tmp_path / ("dump.xml" if form == "xml" else "dump.xml.bz2")
    path.write_bytes(bz2.compress(content) if form == "one stream" else content)
    assert len(cut_and_extract(path, 2_000)) >= 3


def test_histories_are_cut_to_the_newest_revisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = re.compile("<revision>.*?</revision>", re.S)

    def doubled(match: re.Match[str]) -> str:
        old = re.sub("<timestamp>2024", "<timestamp>2004", match[0]).replace("本文", "旧文")
        return match[0] + old * 30

    path = tmp_path / "dump.xml"
    path.write_text(revision.sub(doubled, _articles(100)), encoding="utf8")
    monkeypatch.setattr(dump, "CHUNK", 1 << 11)
    monkeypatch.setattr(inputs, "LONGEST_PAGE", 10_000)
    cut_and_extract(path, 2_000)
    assert "旧文" not in path.with_name("plain.jsonl").read_text(encoding="utf8")
    # A revision, though, has to be of bounded length.
    monkeypatch.setattr(inputs, "LONGEST_PAGE", 100)
    with pytest.raises(CourseError, match="without a whole <page>"):
        list(inputs.dump_shards(path, 300))


@pytest.mark.parametrize("form", ["multistream", "one stream", "xml"])
def test_dumps_are_cut_between_pages(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if form == "multistream":
        # So that a small file is read by its streams, as a real dump is.
        monkeypatch.setattr(dump, "SMALL_FILE", 0)
        monkeypatch.setattr(dump, "GROUP", 1 << 10)
        monkeypatch.setattr(dump, "CHUNK", 1 << 11)
    monkeypatch.setattr(inputs, "CHUNK", 1 << 10)
    xml = _articles(300)
    content = multistream(xml, 7) if form == "multistream" else xml.encode()
    path = tmp_path / ("dump.xml" if form == "xml" else "dump.xml.bz2")
    path.write_bytes(bz2.compress(content) if form == "one stream" else content)
    shards = cut_and_extract(path, 2_000)
    assert len(shards) >= 3
    if form == "multistream":
        assert any(piece.compressed for piece in read_pieces(path))
        assert b"".join(shards) == content


def test_pages_torn_between_streams_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "SMALL_FILE", 0)
    monkeypatch.setattr(dump, "GROUP", 500)
    monkeypatch.setattr(dump, "CHUNK", 1000)
    monkeypatch.setattr(inputs, "CHUNK", 0)
    xml = _articles(120).encode()
    path = tmp_path / "dump.xml.bz2"
    # Every third stream ends with a page, the others inside one.
    cuts = [xml.find(b"</page>", at) + 7 if at % 9000 == 0 else at for at in range(3000, len(xml) - 3000, 3000)]
    streams = [xml[start:end] for start, end in pairwise([0, *cuts, len(xml)])]
    path.write_bytes(b"".join(map(bz2.compress, streams)))
    assert len(cut_and_extract(path, 500)) > 1
