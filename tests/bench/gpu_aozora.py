"""The run gpt2-aozora on a lent card: the text goes there in packed shards, over several calls, and the model comes back.

    python  -m tests.bench.gpu_aozora pack aozora-text/train.jsonl -o workspace/aozora --room 28 52 52    # here; MB for each call
    python3 -m tests.bench.gpu_aozora unpack workspace/aozora/1 --tokenizer DIR -o /tmp/aozora       # there, in each call
    python3 -m tests.bench.gpu_aozora train /tmp/aozora --tokenizer DIR -o /tmp/run --parts $OUT     # there, in the last one
    python  -m tests.bench.gpu_aozora join PARTS -o model                                            # here

A shard has whole documents, SHARD characters at least, as xz of UTF-16; packing reads each back and compares.
`train` is what `course pretrain -c gpt2-aozora.yaml` does. It also writes result.json: speed, share of the measured rate of matrix products, log.
"""

import argparse
import json
import lzma
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from course_lib.documents import read_texts
from course_lib.errors import CourseError
from course_lib.files import atomic_folder, sha256
from course_lib.parallel import default_workers
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.encode import tokenize
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training import log
from course_lib.training.loop import train as train_run

from tests.bench.gpu_common import matrix_rate

RUN = "gpt2-aozora.yaml"
SHARD = 4_000_000  # characters
PART = 15 << 20  # bytes of a file that comes back
WEIGHTS, OTHERS, RESULT = "model.safetensors", "others.tar", "result.json"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    for name in ("pack", "unpack", "train", "join"):
        action = actions.add_parser(name)
        action.add_argument("source", type=Path)
        action.add_argument("-o", "--output", type=Path, required=True)
        if name == "pack":
            action.add_argument("--room", type=float, nargs="+", required=True, metavar="MB", help="of each call")
        if name in ("unpack", "train"):
            action.add_argument("--tokenizer", type=Path, required=True)
        if name == "train":
            action.add_argument("--parts", type=Path, required=True, metavar="DIR", help="for what comes back")
            action.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    started = perf_counter()
    if options.action == "pack":
        pack(options.source, options.output, [round(1e6 * each) for each in options.room])
    elif options.action == "unpack":
        unpack(options.source, options.tokenizer, options.output)
    elif options.action == "train":
        train(options.source, options.tokenizer, options.output, options.parts, options.set)
    else:
        join(options.source, options.output)
    print(f"{options.action}: {perf_counter() - started:.0f} s", flush=True)


def pack(source: Path, target: Path, room: Sequence[int]) -> None:
    """Writes the shards of a file of documents into target/1, target/2 and so on, at most room[i] bytes into each."""
    with ProcessPoolExecutor(default_workers()) as pool, atomic_folder(target) as folder:
        call, taken, characters = 1, 0, 0
        for number, (packed, length) in enumerate(pool.map(packed_shard, shards(read_texts(source)))):
            if taken + len(packed) > room[call - 1]:
                call, taken = call + 1, 0
            if call > len(room):
                raise CourseError(f"--room: holds {characters:,} characters; give room for another call")
            (folder / str(call)).mkdir(exist_ok=True)
            (folder / str(call) / f"{number:03d}.xz").write_bytes(packed)
            taken, characters = taken + len(packed), characters + length
            print(f"call {call}: {taken / 1e6:.1f} MB, {characters:,} characters in all", flush=True)


def shards(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yields documents in groups of at least SHARD characters; the last group has the rest."""
    group, length = list[str](), 0
    for text in texts:
        group.append(text)
        length += len(text)
        if length >= SHARD:
            yield group
            group, length = [], 0
    if group:
        yield group


def packed_shard(texts: list[str]) -> tuple[bytes, int]:
    """Returns the packed documents, which were read back, and their length [characters]."""
    packed = lzma.compress(json.dumps(texts, ensure_ascii=False).encode("utf-16-le"), preset=9 | lzma.PRESET_EXTREME)
    assert unpacked_shard(packed) == texts
    return packed, sum(map(len, texts))


def unpacked_shard(packed: bytes) -> list[str]:
    found: list[str] = json.loads(lzma.decompress(packed).decode("utf-16-le"))
    return found


def unpack(source: Path, tokenizer: Path, target: Path) -> None:
    """Writes target/NUMBER.bin and .idx, the tokens of each shard, on all cores."""
    target.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(default_workers()) as pool:
        tokens = sum(pool.map(partial(_tokenized, tokenizer, target), sorted(source.glob("*.xz"))))
    print(f"{tokens:,} tokens", flush=True)


def _tokenized(tokenizer: Path, target: Path, packed: Path) -> int:
    texts = unpacked_shard(packed.read_bytes())
    document = target / f"{packed.stem}.jsonl"
    document.write_text("".join(f"{json.dumps({'text': text}, ensure_ascii=False)}\n" for text in texts), "utf8")
    report = tokenize([document], tokenizer, target / packed.stem, append_eod=True)
    document.unlink()
    return report.tokens


def train(source: Path, tokenizer: Path, folder: Path, parts: Path, changes: Sequence[str]) -> None:
    """Trains on all tokens of a folder, and writes the model and result.json to `parts`, in files of at most PART bytes."""
    inputs = ",".join(str(path.with_suffix("")) for path in sorted(source.glob("*.idx")))
    named = [f"data.input=[{inputs}]", f"data.tokenizer={tokenizer}", f"engine.output_dir={folder}"]
    settings = config.load(PretrainConfig, RUN, [*named, "engine.tracking=[]", *changes])
    rate = matrix_rate("cpu" if settings.launch.device == "cpu" else "cuda", settings.precision.dtype)
    run = Gpt2(settings)
    trained = train_run(run)
    run.export(folder / "model")
    entries = [entry for entry in log.read(folder) if entry["kind"] == "train"]
    speed = median(entry["tokens_per_second"] for entry in entries)
    result = {
        "settings": config.changed(settings) | {"data.input": None, "data.tokenizer": None, "engine.output_dir": None},
        "steps": trained.steps,
        "tokens": trained.steps * settings.batch.resolve(1).total * settings.data.seq_length,
        "epochs": entries[-1]["epoch"],
        "tokens_per_second": speed,
        "matrix_rate": rate,
        "share": speed * settings.sizes().flops_per_token / rate,
        "memory": entries[-1].get("memory"),
        "sha256": sha256(folder / "model" / WEIGHTS),
        "log": entries,
    }
    parts.mkdir(parents=True, exist_ok=True)
    (parts / RESULT).write_text(json.dumps(result, indent=1) + "\n", encoding="utf8")
    with tarfile.open(parts / OTHERS, "w") as archive:
        for path in sorted((folder / "model").iterdir()):
            if path.name != WEIGHTS:
                archive.add(path, path.name)
    content = (folder / "model" / WEIGHTS).read_bytes()
    for number, at in enumerate(range(0, len(content), PART)):
        (parts / f"{WEIGHTS}.{number:02d}").write_bytes(content[at : at + PART])
    print(f"{result['tokens']:,} tokens, {speed:,.0f} tokens/s, {result['share']:.1%} of the matrix rate", flush=True)


def join(parts: Path, target: Path) -> None:
    """Writes the model folder whose files came back; CourseError if a part of the weights is missing."""
    with atomic_folder(target) as folder:
        with open(folder / WEIGHTS, "wb") as file:
            for part in sorted(parts.glob(f"{WEIGHTS}.*")):
                file.write(part.read_bytes())
        if sha256(folder / WEIGHTS) != json.loads((parts / RESULT).read_bytes())["sha256"]:
            raise CourseError(f"{parts}: the parts of {WEIGHTS} are not those that {RESULT} names")
        with tarfile.open(parts / OTHERS) as archive:
            archive.extractall(folder, filter="data")


if __name__ == "__main__":
    main()
