"""The stages of `course scale` with one worker: seconds per byte, memory and disk, as `course scale plan` needs them.

    python -m tests.bench.bench_scale [--text 50] [--dump 8] [--rounds 3] [--rates course_lib/scale/rates.yaml] [-o FOLDER]

The corpora are drawn from the sentences of the bundled samples: web text with 10 % repeats, and a dump of articles.
"""

import argparse
import random
import shutil
import statistics
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from course_lib.corpus.webtext import clean_webtext
from course_lib.corpus.wikipedia import extract
from course_lib.documents import read_texts
from course_lib.japanese import split_sentences
from course_lib.paths import data
from course_lib.scale.config import ScaleConfig
from course_lib.scale.inputs import dump_shards
from course_lib.scale.run import run
from course_lib.scale.store import Store
from course_lib.scale.text import STAGES
from course_lib.settings import config
from course_lib.settings.yaml_values import dump

from tests.corpus.dumps import export, multistream


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=float, default=50, help="web text [MB]")
    parser.add_argument("--dump", type=float, default=8, help="dump, uncompressed [MB]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", type=Path, help="YAML to write")
    parser.add_argument("-o", "--output", type=Path, help="folder for the work; default: the system's")
    arguments = parser.parse_args()
    folder = Path(mkdtemp(dir=arguments.output))
    inputs = {"wikipedia": folder / "dump.xml.bz2", "webtext": folder / "web.txt"}
    write_dump(inputs["wikipedia"], int(arguments.dump * 1e6))
    write_text(inputs["webtext"], int(arguments.text * 1e6))
    rates: dict[str, Any] = {}
    for kind, path in inputs.items():
        size = path.stat().st_size
        print(f"\n{kind}: {size / 1e6:.1f} MB\nstage      MB/s a core  (spread)      memory, MB  disk, B/B")
        rounds = [measured(kind, path, folder / "run") for _ in range(arguments.rounds)]
        rates[kind] = {}
        for stage, found in rounds[0].items():
            seconds = sorted(round[stage]["seconds"] for round in rounds)
            middle = statistics.median(seconds)
            # The search for repeats has no units in a dump.
            if not middle:
                continue
            print(
                f"{stage:<15}{size / middle / 1e6:>6.2f}  ({size / seconds[-1] / 1e6:.2f}-{size / seconds[0] / 1e6:.2f})"
                f"{found['memory'] / 1e6:>14.0f}{found['disk'] / size:>11.2f}",
                flush=True,
            )
            disk = round(found["disk"] / size, 3)
            rates[kind][stage] = {"seconds": middle / size, "memory": found["memory"], "disk": disk}
    # The dump above is small enough to be compressed again; a real one is copied stream by stream.
    write_dump(inputs["wikipedia"], 50_000_000)
    seconds = sorted(copied(inputs["wikipedia"]) for _ in range(arguments.rounds))
    split = {"seconds": statistics.median(seconds) / inputs["wikipedia"].stat().st_size, "disk": 1.0}
    rates["wikipedia"]["split"] |= split
    if arguments.rates:
        arguments.rates.write_text(dump(rates), encoding="utf8")
    shutil.rmtree(folder)


def measured(kind: str, path: Path, output: Path) -> dict[str, dict[str, float]]:
    """A run; for each stage the core seconds of all units, the memory, and the bytes written."""
    shutil.rmtree(output, ignore_errors=True)
    shard = path.stat().st_size // 24
    values = {"output": str(output), kind: [str(path)], "workers": 1, "tasks": 12, "bpe": {"vocab_size": 4000}}
    run(config.build(ScaleConfig, values | {"dump_shard": shard, "text_shard": shard}))
    store, found = Store(str(output)), {}
    for stage in STAGES:
        notes = [store.marker(stage.name, unit) for unit in store.done(stage.name)]
        found[stage.name] = {
            "seconds": sum(note["core_seconds"] for note in notes),
            "memory": max((note["memory"] for note in notes), default=0),
            "disk": sum(sum(note["files"].values()) for note in notes),
        }
    return found


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
    written = 0
    while written < size:
        section = "\n\n".join(
            f"== 見出し ==\n[[記事|{rng.choice(pool)}]]" + "".join(rng.sample(pool, 12)) for _ in range(3)
        )
        articles.append((f"題名{len(articles)}", section))
        written += len(section.encode()) + 600
    path.write_bytes(multistream(export(articles)))


if __name__ == "__main__":
    main()
