"""How well works of Aozora Bunko in today's orthography are told from older ones, against Aozora Bunko's own list.

    course corpus aozora ARCHIVE -o all --orthography all --copyrighted --held-out-share 0 --set max_repeated=1
    python -m tests.bench.bench_aozora all/train.jsonl list_person_all_utf8.csv

The list is in https://www.aozora.gr.jp/index_pages/list_person_all_utf8.zip.
"""

import csv
import re
import sys
from collections import Counter
from pathlib import Path

import orjson


def main(documents: Path, listed: Path) -> None:
    """Print the counts by list and by the course, and what follows from them, for works and for characters."""
    with open(listed, encoding="utf-8-sig", newline="") as file:
        kinds = {int(row["作品ID"]): row["仮名遣い種別"] for row in csv.DictReader(file)}
    works: Counter[tuple[bool, bool]] = Counter()
    characters: Counter[tuple[bool, bool]] = Counter()
    for line in documents.read_bytes().splitlines():
        work = orjson.loads(line)
        number = re.search(r"/(\d+)_[^/]*$", work["file"])
        kind = kinds.get(int(number[1]), "") if number else ""
        if kind.endswith("仮名"):
            pair = kind.endswith("新仮名"), work["orthography"] == "new"
            works[pair] += 1
            characters[pair] += len(work["text"])
    for unit, counts in (("works", works), ("characters", characters)):
        right = counts[True, True]
        precision, recall = right / (right + counts[False, True]), right / (right + counts[True, False])
        print(f"{counts.total():,} {unit}: precision {precision:.2%}, recall {recall:.2%} {dict(counts)}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
