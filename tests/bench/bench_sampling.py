"""Document, sample and shuffle index of a corpus, against the functions of megatron-core (its compiled helper among them), by turns.

    python -m tests.bench.bench_sampling PEER_PYTHON [--documents 5000000] [--tokens 2000000000] [--epochs 3]

PEER_PYTHON is the interpreter of an environment with `pip install torch packaging` and `pip install --no-deps megatron-core==0.9.0`.
Each side is a process of its own that loads the sizes from a file; quoted are the seconds of building and the growth of its peak memory
meanwhile. The indices are compared. Then the same through the cache, and the time a sample takes to be put together
(without reading the tokens from a disk).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from course_lib.pretrain.sampling import Array, GptDataset

SEED = 1234
MEASURE = """
import hashlib, json, resource, sys, time
import numpy as np
{imports}
sizes, seq_length, epochs = np.load(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
tokens, random = int(sizes.sum(dtype=np.int64)), np.random.RandomState({seed})
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
before, started = peak(), time.perf_counter()
{build}
seconds, grown = time.perf_counter() - started, peak() - before
digest = hashlib.sha256(b"".join(memoryview(array).cast("B") for array in (documents, samples, shuffle))).hexdigest()
print(json.dumps([seconds, grown, digest]))
"""
OURS = MEASURE.format(
    imports="from course_lib.pretrain.sampling import document_index, sample_index, shuffle_index",
    build="""
documents = document_index(range(len(sizes)), epochs, False, random)
samples = sample_index(sizes, documents, seq_length, epochs * tokens)
shuffle = shuffle_index(len(samples) - 1, len(samples) - 1, random)
""",
    seed=SEED,
)
PEER = MEASURE.format(
    imports="""
from megatron.core.datasets import helpers
from megatron.core.datasets.gpt_dataset import _build_document_index, _build_shuffle_index
""",
    build="""
documents = _build_document_index(np.arange(len(sizes), dtype=np.int32), epochs, random, False)
samples = helpers.build_sample_idx(sizes, documents, seq_length, epochs, tokens, True, 1)
shuffle = _build_shuffle_index(len(samples) - 1, len(samples) - 1, random)
""",
    seed=SEED,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", help="python of the environment with megatron-core")
    parser.add_argument("--documents", type=int, default=5_000_000)
    parser.add_argument("--tokens", type=int, default=2_000_000_000, help="in all documents together, about")
    parser.add_argument("--seq-length", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sizes = np.random.default_rng(0).geometric(arguments.documents / arguments.tokens, arguments.documents)
    sizes = sizes.astype(np.int32)
    print(f"{len(sizes)} documents, {sizes.sum(dtype=np.int64)} tokens, {arguments.epochs} epochs")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "sizes.npy", sizes)
        given = [str(folder / "sizes.npy"), str(arguments.seq_length), str(arguments.epochs)]
        pairs = [
            (measured(sys.executable, OURS, given), measured(arguments.peer, PEER, given))
            for _ in range(arguments.rounds)
        ]
        if len({digest for pair in pairs for *_, digest in pair}) != 1:
            sys.exit("the indices differ")
        for side, runs in zip(("course_lib", "megatron-core"), zip(*pairs, strict=True), strict=True):
            seconds, memory = (statistics.median(run[which] for run in runs) for which in (0, 1))
            print(f"{side:14} {seconds:5.2f} s, peak memory {memory:5.0f} MB more")
        print(f"time ratio {statistics.median(ours[0] / peer[0] for ours, peer in pairs):.2f}, indices equal")
        report_cache(folder / "cache", Zeros(sizes), arguments.seq_length, arguments.epochs)


def measured(python: str, code: str, given: list[str]) -> tuple[float, float, str]:
    """(seconds, MB of peak memory more, digest of the indices) of one building in its own process."""
    done = subprocess.run([python, "-W", "ignore", "-c", code, *given], check=True, capture_output=True, text=True)
    seconds, memory, digest = json.loads(done.stdout.splitlines()[-1])
    return seconds, memory, digest


class Zeros:
    """A corpus of such sizes without its tokens."""

    def __init__(self, sizes: Array) -> None:
        self.sizes = sizes
        self._tokens = np.zeros(sizes.max(), np.uint16)

    def get(self, _i: int, _offset: int, length: int) -> Array:
        return self._tokens[:length]


def report_cache(cache: Path, corpus: Zeros, seq_length: int, epochs: int) -> None:
    sizes = corpus.sizes
    samples = (epochs * int(sizes.sum(dtype=np.int64)) - 1) // seq_length
    for what in ("built and stored", "found in the cache"):
        started = time.perf_counter()
        data = GptDataset(corpus, range(len(sizes)), seq_length, samples, SEED, cache)
        print(f"{what:18} {time.perf_counter() - started:5.2f} s")
    started = time.perf_counter()
    for at in range(20_000):
        data[at]
    print(f"one sample: {(time.perf_counter() - started) / 20_000 * 1e6:.0f} µs")


if __name__ == "__main__":
    main()
