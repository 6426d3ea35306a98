"""The search for near-duplicates in large corpora: time per document, memory and disk, from 25,000 documents on.

    python -m tests.bench.bench_repeats [--most 10000000] [--bands 32] [--workers 1] [-o FOLDER]

The signatures are drawn: values of 32 bits, where 2 % of the values of two documents are equal, as measured on unrelated
novels and web pages, and one document in ten resembles an earlier one with a similarity of 0.8.
"""

import argparse
import os
import resource
import shutil
import time
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from course_lib.corpus.config import DedupConfig
from course_lib.corpus.dedup import band_hashes
from course_lib.corpus.repeats import near_repeats

# Documents drawn at a time, and the share of equal values of two unrelated documents.
BLOCK, EQUAL = 50_000, 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000, help="documents in the largest corpus")
    parser.add_argument("--bands", type=int, default=32, help="32: the profile xl; 64: the default")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, help="folder for the columns; default: the system's")
    arguments = parser.parse_args()
    settings = DedupConfig(num_bands=arguments.bands)
    smaller = [size for size in (25_000 * 4**step for step in range(12)) if 2 * size < arguments.most]
    # Microseconds are those of the clock and, in brackets, of the processor, which other work on the machine changes less.
    print("documents  planted  found  others  us/document (processor)  columns, B/document  peak memory, MB")
    for size in [*smaller, arguments.most]:
        folder = Path(mkdtemp(dir=arguments.output))
        planted = write(folder, size, settings)
        started, used = time.perf_counter(), processor_seconds()
        needed = settings.similarity * settings.num_perm
        bands = sorted(folder.glob("band-*"))
        found = near_repeats(
            bands, folder / "signatures", settings.num_perm, needed, folder / "kept", arguments.workers
        )
        took, used = time.perf_counter() - started, processor_seconds() - used
        disk = sum(path.stat().st_size for path in folder.iterdir()) / size
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1e3
        hits, wrong = (found >= 0)[planted].mean(), (found >= 0)[~planted].sum()
        print(
            f"{size:>9,}{planted.sum():>9,}{hits:>7.1%}{wrong:>8,}{took / size * 1e6:>13.1f}"
            f" ({used / size * 1e6:.1f}){disk:>26.0f}{peak:>18.0f}",
            flush=True,
        )
        shutil.rmtree(folder)


def processor_seconds() -> float:
    """Returns the processor time of this process and of the workers that have ended [s]."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def write(folder: Path, documents: int, settings: DedupConfig) -> np.ndarray:
    """Writes the columns of a drawn corpus; returns which documents are planted near-duplicates, [documents]."""
    rng = np.random.default_rng(1)
    columns = [(folder / f"band-{band:04}").open("wb") for band in range(settings.num_bands)]
    signatures, planted = (folder / "signatures").open("wb"), []
    # A value that all documents may share, for each place of the signature.
    common = rng.integers(0, 2**32, settings.num_perm, dtype=np.uint32)
    earlier = np.empty((0, settings.num_perm), dtype=np.uint32)
    block = min(BLOCK, documents // 5)
    for start in range(0, documents, block):
        rows = rng.integers(0, 2**32, (min(block, documents - start), settings.num_perm), dtype=np.uint32)
        # Two documents both have the common value with probability EQUAL.
        rows = np.where(rng.random(rows.shape, dtype=np.float32) < EQUAL**0.5, common, rows)
        copies = np.zeros(len(rows), dtype=np.bool_)
        if len(earlier):
            copies = rng.random(len(rows)) < 0.1
            sources = earlier[rng.integers(0, len(earlier), copies.sum())]
            rows[copies] = np.where(rng.random(sources.shape, dtype=np.float32) < 0.8, sources, rows[copies])
        else:
            earlier = rows[:1000].copy()
        hashes = band_hashes(rows, settings.num_bands)
        for band, file in enumerate(columns):
            file.write(hashes[:, band].tobytes())
        signatures.write(rows.astype(np.uint8).tobytes())
        planted.append(copies)
    for file in (*columns, signatures):
        file.close()
    np.ones(documents, dtype=np.bool_).tofile(folder / "kept")
    return np.concatenate(planted)


if __name__ == "__main__":
    main()
