"""The stages of `course scale`: seconds per byte, memory and disk, 1 → 2 workers, and the engine against the plain verbs.

What two cores can gain is shown by the plain functions, once alone and twice side by side with nothing shared.

    python -m tests.bench.bench_scale [--text 50] [--dump 8] [--rounds 3] [--rates course_lib/scale/rates.yaml] [-o FOLDER]

The corpora are drawn from the sentences of the bundled samples: web text with 10 % repeats, and a dump of articles. With
--rates, what was measured with one worker is stored for `course scale plan`. `--memory 50 2000` measures the memory
alone: of one worker on web text of these sizes [MB], in shards of the default size.
"""

import argparse
import random
import shutil
import statistics
import time
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from course_lib.corpus.webtext import clean_webtext
from course_lib.corpus.wikipedia import extract
from course_lib.documents import read_texts
from course_lib.japanese import split_sentences
from course_lib.japanese.pipeline import segment_file
from course_lib.paths import data
from course_lib.pretrain.encode import tokenize
from course_lib.scale.config import ScaleConfig
from course_lib.scale.inputs import dump_shards
from course_lib.scale.run import run
from course_lib.scale.store import Store
from course_lib.scale.text import STAGES
from course_lib.settings import config
from course_lib.settings.yaml_values import dump
from course_lib.subword.bpe import train_bpe

from tests.corpus.dumps import export, multistream


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=float, default=50, help="web text [MB]")
    parser.add_argument("--dump", type=float, default=8, help="dump, uncompressed [MB]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", type=Path, help="YAML to write")
    parser.add_argument("-o", "--output", type=Path, help="folder for the work; default: the system's")
    parser.add_argument("--memory", type=float, nargs="+", help="sizes of web text [MB]")
    arguments = parser.parse_args()
    folder = Path(mkdtemp(dir=arguments.output))
    for size in arguments.memory or ():
        write_text(folder / "web.txt", int(size * 1e6))
        # In a process of its own, because the peak would count what an earlier size took.
        own = get_context("spawn").Process(target=memory, args=(folder / "web.txt", folder / "run"))
        own.start()
        own.join()
    if arguments.memory:
        shutil.rmtree(folder)
        return
    inputs = {"wikipedia": folder / "dump.xml.bz2", "webtext": folder / "web.txt"}
    write_dump(inputs["wikipedia"], int(arguments.dump * 1e6))
    write_text(inputs["webtext"], int(arguments.text * 1e6))
    rates: dict[str, Any] = {}
    for kind, path in inputs.items():
        size = path.stat().st_size
        print(f"\n{kind}: {size / 1e6:.1f} MB")
        alone = [plain(kind, path, folder / "plain") for _ in range(arguments.rounds)]
        one = [measured(kind, path, folder / "run", 1) for _ in range(arguments.rounds)]
        print("stage      MB/s a core  (spread)      memory, MB  disk, B/B")
        for stage in (stage.name for stage in STAGES):
            seconds = sorted(round[stage]["seconds"] for round in one)
            middle = statistics.median(seconds)
            # The search for repeats has no units in a dump.
            if not middle:
                continue
            found = one[0][stage]
            print(
                f"{stage:<15}{size / middle / 1e6:>6.2f}  ({size / seconds[-1] / 1e6:.2f}-{size / seconds[0] / 1e6:.2f})"
                f"{found['memory'] / 1e6:>14.0f}{found['disk'] / size:>11.2f}",
                flush=True,
            )
            rates.setdefault(kind, {})[stage] = {
                "seconds": middle / size,
                "memory": found["memory"],
                "disk": round(found["disk"] / size, 3),
            }
        total = statistics.median(sum(stage["seconds"] for stage in round.values()) for round in one)
        print(
            f"plain verbs {statistics.median(alone):.1f} core seconds, stages {total:.1f}, ratio {total / statistics.median(alone):.2f}"
        )
        print(f"two processes that share nothing: {apart(kind, path, folder):.2f} × one", flush=True)
    # The dump above is small enough to be compressed again; a real one is copied stream by stream.
    rates["wikipedia"]["split-recompressed"] = rates["wikipedia"].pop("split")
    write_dump(inputs["wikipedia"], 50_000_000)
    size = inputs["wikipedia"].stat().st_size
    seconds = sorted(copied(inputs["wikipedia"]) / size for _ in range(arguments.rounds))
    rates["wikipedia"]["split"] = rates["wikipedia"]["split-recompressed"] | {
        "seconds": statistics.median(seconds),
        "disk": 1.0,
    }
    if arguments.rates:
        arguments.rates.write_text(dump(rates), encoding="utf8")
    shutil.rmtree(folder)


def memory(path: Path, output: Path) -> None:
    """Prints the peak memory of the process of each stage, which is the highest of the stages so far."""
    found = measured("webtext", path, output, 1, shard=ScaleConfig().text_shard)
    stages = ", ".join(f"{stage} {one['memory'] / 1e6:.0f}" for stage, one in found.items())
    print(f"{path.stat().st_size / 1e6:.0f} MB of web text, memory of the stages [MB]: {stages}", flush=True)


def chosen(kind: str, path: Path, output: Path, workers: int, shard: int | None = None) -> ScaleConfig:
    size = shard or path.stat().st_size // 24
    values: dict[str, Any] = {
        "output": str(output),
        kind: [str(path)],
        "workers": workers,
        "tasks": 12,
        "dump_shard": size,
        "text_shard": size,
        "bpe": {"vocab_size": 4000},
    }
    return config.build(ScaleConfig, values)


def measured(
    kind: str, path: Path, output: Path, workers: int, shard: int | None = None
) -> dict[str, dict[str, float]]:
    """A run; for each stage the core seconds of all units, the memory, and the bytes written."""
    shutil.rmtree(output, ignore_errors=True)
    run(chosen(kind, path, output, workers, shard))
    store, found = Store(str(output)), {}
    for stage in STAGES:
        notes = [store.marker(stage.name, unit) for unit in store.done(stage.name)]
        found[stage.name] = {
            "seconds": sum(note["core_seconds"] for note in notes),
            "memory": max((note["memory"] for note in notes), default=0),
            "disk": sum(sum(note["files"].values()) for note in notes),
        }
    return found


def plain(kind: str, path: Path, output: Path) -> float:
    """Core seconds of the plain functions with one worker, for the same work."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    settings = chosen(kind, path, output, 1)
    started = time.process_time()
    if kind == "wikipedia":
        extract(path, output / "documents.jsonl", settings.extraction)
    else:
        clean_webtext(path, output / "documents.jsonl", settings.cleaning)
    segment_file(output / "documents.jsonl", output / "lines.txt", settings.segment)
    train_bpe([output / "lines.txt"], output / "tokenizer", settings.bpe, show_progress=False)
    tokenize([output / "lines.txt"], output / "tokenizer", output / "tokens", append_eod=True)
    return time.process_time() - started


def apart(kind: str, path: Path, folder: Path) -> float:
    """Work per second of two processes, each of which does all of the work, in units of one alone."""
    seconds = []
    for count in (1, 2):
        started = time.perf_counter()
        workers = [
            # A fork would inherit the locks of the threads of tokenizers.
            get_context("spawn").Process(target=plain, args=(kind, path, folder / f"apart-{number}"))
            for number in range(count)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds.append(time.perf_counter() - started)
    return 2 * seconds[0] / seconds[1]


def copied(path: Path) -> float:
    """Core seconds to cut a multistream dump into shards of the default size."""
    started = time.process_time()
    for shard in dump_shards(path, ScaleConfig().dump_shard):
        path.with_name("shard").write_bytes(shard)
    return time.process_time() - started


def write_text(path: Path, size: int) -> None:
    """Web text of about `size` bytes: documents of random paragraphs, of which one in ten is repeated.

    A sentence joins three clauses of the sample. Whole sentences are too few: in 2 GB, each would occur 100,000 times.
    """
    rng, texts = random.Random(0), path.parent / "sample.jsonl"
    clean_webtext(data("webtext-sample.txt.xz"), texts)
    sentences = [sentence for text in read_texts(texts) for sentence in split_sentences(text)]
    pool = sorted({clause for sentence in sentences for clause in sentence.rstrip("。").split("、") if clause})
    recent: list[str] = []
    with open(path, "w", encoding="utf8") as file:
        while file.tell() < size:
            if recent and rng.random() < 0.1:
                text = rng.choice(recent)
            else:
                clauses = rng.choices(pool, k=36)
                said = ["、".join(clauses[at : at + 3]) + "。" for at in range(0, 36, 3)]
                text = "\n".join("".join(said[at : at + 3]) for at in range(0, 12, 3))
            recent = [*recent[-500:], text]
            file.write(text + "\n\n")


def write_dump(path: Path, size: int) -> None:
    """A multistream dump of about `size` bytes before compression."""
    rng, texts = random.Random(0), path.parent / "sample.jsonl"
    extract(data("jawiki-sample.xml.bz2"), texts)
    pool = [sentence for text in read_texts(texts) for sentence in split_sentences(text)]
    articles: list[tuple[str, str]] = []
    held = 0
    while held < size:
        section = "\n\n".join(
            f"== 見出し ==\n[[記事|{rng.choice(pool)}]]" + "".join(rng.sample(pool, 12)) for _ in range(3)
        )
        articles.append((f"題名{len(articles)}", section))
        held += len(section.encode()) + 600
    path.write_bytes(multistream(export(articles)))


if __name__ == "__main__":
    main()
