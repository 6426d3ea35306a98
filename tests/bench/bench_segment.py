"""Normalize + split + segment, against the bare lossy loop tagger.parse(neologdn.normalize(line)); and two workers against one.

    python -m tests.bench.bench_segment FILE.txt      (UTF-8, a paragraph a line; some MB)

Asked for: one worker at least 0.75 × the bare loop, two workers at least 1.75 × one.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import jumandic
import neologdn
from course_lib.japanese.pipeline import segment_file
from fugashi import GenericTagger

from tests.bench.timing import by_turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    source = parser.parse_args().source
    lines = source.read_text(encoding="utf8").split("\n")
    size = source.stat().st_size / 1e6
    tagger = GenericTagger(f"{jumandic.MECAB_ARGS} -Owakati")

    def bare() -> None:
        with tempfile.TemporaryFile("w") as out:
            for line in lines:
                try:
                    out.write(tagger.parse(neologdn.normalize(line)) + "\n")
                except UnicodeDecodeError:  # the bare loop loses such a line
                    continue

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out.txt"
        first, second = (partial(segment_file, source, target, workers=workers) for workers in (1, 2))
        one, loop, ratio = by_turns(first, bare, clock=time.process_time)
        print(
            f"MB/s of CPU time: one worker {size / one:.2f}, bare loop {size / loop:.2f}; {1 / ratio:.2f} x (>= 0.75)"
        )
        two, one, ratio = by_turns(second, first)
        print(f"MB/s by the clock: two workers {size / two:.2f}, one {size / one:.2f}; {1 / ratio:.2f} x (>= 1.75)")


if __name__ == "__main__":
    main()
