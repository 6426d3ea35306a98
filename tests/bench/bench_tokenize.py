"""`course tokenize` against `encode_batch_fast` + writer, and against Megatron's preprocess_data.py; and counting from the index.

    python -m tests.bench.bench_tokenize LINES.txt [--megatron PYTHON TREE]

LINES.txt are segmented lines (`course segment`), some 20 MB; a BPE of 50 000 entries is trained on them first. PYTHON is an environment
with the needs of TREE, a checkout of Megatron-DeepSpeed. Every run is a process of its own. Asked for: 1.4 × the speed of
`encode_batch_fast` with as many threads as we have workers (imports not counted), and whole commands 5 × faster; the same bytes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import orjson
from course_lib.documents import read_batches, read_texts, texts
from course_lib.pretrain.encode import tokenize
from course_lib.pretrain.indexed import IndexedWriter, dtype_for, files_of, summarize
from course_lib.subword.bpe import train_bpe
from course_lib.subword.config import BpeConfig
from tokenizers import Tokenizer

from tests.bench.timing import by_turns, seconds


def peer(source: Path, tokenizer: Path, prefix: Path) -> None:
    """Whole documents, a megabyte at a time, in as many threads as RAYON_NUM_THREADS says."""
    loaded = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    dtype = dtype_for(loaded.get_vocab_size())
    with IndexedWriter(prefix, dtype) as writer:
        for batch in read_batches(source):
            for encoding in loaded.encode_batch_fast(list(texts(batch)), add_special_tokens=False):
                ids = np.array(encoding.ids, dtype)
                writer.append(ids, np.array([len(ids)]))


def in_a_process(side: str, source: Path, tokenizer: Path, prefix: Path, workers: int) -> float:
    """Seconds of one side, imports not counted."""
    command = [
        sys.executable,
        "-m",
        "tests.bench.bench_tokenize",
        str(source),
        "--side",
        side,
        str(tokenizer),
        str(prefix),
    ]
    environment = os.environ | {"RAYON_NUM_THREADS": str(workers)}
    done = subprocess.run([*command, str(workers)], env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def run_side(source: Path, side: str, tokenizer: str, prefix: str, workers: str) -> None:
    if side == "peer":
        print(seconds(lambda: peer(source, Path(tokenizer), Path(prefix))))
    elif side == "ours":
        print(seconds(lambda: tokenize([source], Path(tokenizer), Path(prefix), int(workers))))
    else:  # the whole command
        tokenize([source], Path(tokenizer), Path(prefix), int(workers))
        print(0)


def against_the_library(source: Path, tokenizer: Path, folder: Path, rounds: int) -> None:
    for workers in (1, 2):
        pairs = [
            (
                in_a_process("ours", source, tokenizer, folder / "ours", workers),
                in_a_process("peer", source, tokenizer, folder / "peer", workers),
            )
            for _ in range(rounds)
        ]
        same = all(
            a.read_bytes() == b.read_bytes() for a, b in zip(files_of(folder / "ours"), files_of(folder / "peer"))
        )
        tokens = summarize(folder / "ours").tokens / 1e6
        ours, other = (median(column) for column in zip(*pairs))
        ratio = median(b / a for a, b in pairs)
        print(
            f"{workers} processes: {tokens / ours:.2f} Mtok/s, encode_batch_fast {tokens / other:.2f} Mtok/s, "
            f"speed ratio {ratio:.2f} (>= 1.4), same bytes: {same}",
            flush=True,
        )


def against_megatron(source: Path, tokenizer: Path, folder: Path, rounds: int, python: str, tree: str) -> None:
    documents = folder / "lines.jsonl"
    documents.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in read_texts(source)))
    environment: dict[str, Any] = os.environ | {"DS_ACCELERATOR": "cpu"}
    for workers in (1, 2):
        theirs = [
            python, f"{tree}/tools/preprocess_data.py", "--input", documents, "--tokenizer-type", "HFTokenizer", "--tokenizer-model",
            tokenizer, "--seq-length", "1024", "--output-prefix", folder / "megatron", "--workers", str(workers),
        ]  # fmt: skip
        ours = [Path(sys.executable).with_name("course"), "tokenize", source, "--tokenizer", tokenizer]
        ours += ["-o", folder / "ours", "--workers", str(workers)]
        mine, other, ratio = by_turns(
            lambda command=ours: subprocess.run(command, check=True, capture_output=True),  # type: ignore[misc]
            lambda command=theirs: subprocess.run(command, check=True, capture_output=True, env=environment),  # type: ignore[misc]
            rounds,
        )
        same = all(
            a.read_bytes() == b.read_bytes()
            for a, b in zip(files_of(folder / "ours"), files_of(folder / "megatron_text_document"))
        )
        print(
            f"{workers} workers: whole command {mine:.1f} s, preprocess_data.py {other:.1f} s, {1 / ratio:.1f} x faster (>= 5), "
            f"same bytes: {same}",
            flush=True,
        )


def counting(folder: Path, documents: int = 2_000_000) -> None:
    with IndexedWriter(folder / "many", np.dtype("<u2")) as writer:
        sizes = np.random.default_rng(1).integers(1, 20, documents)
        writer.append(np.zeros(sizes.sum(), "<u2"), sizes)
    summarize(folder / "many")
    times = [seconds(lambda: summarize(folder / "many"), time.perf_counter) for _ in range(9)]
    print(f"counting {documents} documents from the index: {median(times) * 1e3:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--megatron", nargs=2, metavar=("PYTHON", "TREE"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run_side(options.lines, *options.side)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train_bpe([options.lines], folder / "bpe", BpeConfig(), show_progress=False)
        against_the_library(options.lines, folder / "bpe", folder, options.rounds)
        counting(folder)
        if options.megatron:
            against_megatron(options.lines, folder / "bpe", folder, options.rounds, *options.megatron)


if __name__ == "__main__":
    main()
