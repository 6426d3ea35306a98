"""Small corpora for the tests of course_lib.scale, the plain way through the chapters, and the same for the stages."""

import lzma
from pathlib import Path
from typing import Any

import orjson
from course_lib.corpus.report import write_report
from course_lib.corpus.webtext import clean_webtext
from course_lib.corpus.wikipedia import extract
from course_lib.japanese.pipeline import segment_file
from course_lib.paths import data
from course_lib.pretrain.encode import tokenize
from course_lib.scale.config import ScaleConfig
from course_lib.scale.stages import Stage
from course_lib.scale.store import Store
from course_lib.settings import config
from course_lib.subword.bpe import train_bpe

RESULTS = ("wikipedia.jsonl", "webtext.jsonl", "lines.txt", "tokenizer.json", "tokens.bin", "tokens.idx")
REPORTS = ("wikipedia.report.json", "webtext.report.json")


def settings(output: Path | str, **changes: Any) -> ScaleConfig:
    """The settings of a run over the bundled samples, cut into 9 shards of articles and 4 of web text."""
    chosen: dict[str, Any] = {
        "output": str(output),
        "wikipedia": [str(data("jawiki-sample.xml.bz2"))],
        "webtext": [str(data("webtext-sample.txt.xz"))],
        "workers": 1,
        "dump_shard": 40_000,
        "text_shard": 80_000,
        "cleaning": {"dedup": {"num_perm": 48, "num_bands": 16}},
        "bpe": {"vocab_size": 5000, "input_sentence_size": 3000},
    }
    return config.build(ScaleConfig, chosen | changes)


def plain(folder: Path, chosen: ScaleConfig) -> dict[str, bytes]:
    """What the plain functions of the chapters make of the same inputs on one machine."""
    folder.mkdir()
    (dump,), (text,) = (map(Path, names) for names in (chosen.wikipedia, chosen.webtext))
    report = extract(dump, folder / "wikipedia.jsonl", chosen.extraction)
    write_report(report, folder / "wikipedia")
    write_report(clean_webtext(text, folder / "webtext.jsonl", chosen.cleaning), folder / "webtext")
    lines = [folder / "wikipedia.txt", folder / "webtext.txt"]
    for path in lines:
        segment_file(path.with_suffix(".jsonl"), path, chosen.segment)
    (folder / "lines.txt").write_bytes(b"".join(path.read_bytes() for path in lines))
    train_bpe(lines, folder / "tokenizer", chosen.bpe, show_progress=False)
    (folder / "tokenizer.json").write_bytes((folder / "tokenizer" / "tokenizer.json").read_bytes())
    tokenize(lines, folder / "tokenizer", folder / "tokens", append_eod=chosen.append_eod)
    return {name: (folder / name).read_bytes() for name in (*RESULTS, *REPORTS)}


def scaled(output: str) -> dict[str, bytes]:
    """What a run of the stages made, in the same form."""
    store = Store(output)
    shards = Stage(config.build(ScaleConfig, orjson.loads(store.read("scale.json")) | {"output": output})).shards()

    def joined(names: list[str]) -> bytes:
        return b"".join(map(store.read, names))

    return {
        "wikipedia.jsonl": joined([f"documents/{one.unit}.jsonl" for one in shards if one.kind == "wikipedia"]),
        "webtext.jsonl": joined([f"clean/{one.unit}.jsonl" for one in shards if one.kind == "webtext"]),
        "lines.txt": joined([f"segment/{one.unit}.txt" for one in shards]),
        "tokenizer.json": store.read("tokenizer/tokenizer/tokenizer.json"),
        "tokens.bin": store.read("merged/tokens.bin"),
        "tokens.idx": store.read("merged/tokens.idx"),
        **{name: store.read(f"merged/{name}") for name in REPORTS},
    }


def in_order(chosen: ScaleConfig, stages: tuple[type[Stage], ...]) -> None:
    """Runs all tasks of the stages in this process, without an engine."""
    for stage in stages:
        tasks = stage(chosen).tasks()
        for rank in range(tasks):
            stage(chosen).run(None, rank, tasks)


def write_xz(path: Path, documents: list[bytes]) -> Path:
    """Web text in CC-100's form."""
    path.write_bytes(lzma.compress(b"\n\n".join(documents) + b"\n", preset=0))
    return path
