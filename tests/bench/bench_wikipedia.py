"""`course corpus wikipedia` against wikiextractor 3.1.0 with the same number of processes: time and leftovers of both.

    python -m venv peer && peer/bin/pip install wikiextractor==3.1.0     (an environment of its own)
    python -m tests.bench.bench_wikipedia DUMP.xml.bz2 --peer peer/bin/wikiextractor

Asked for: at least as fast, with at most a tenth of its leftovers.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.timing import by_turns

LEFTOVERS = {
    "empty （）": re.compile(r"（\s*）|\(\s*\)"),
    "（、": re.compile(r"[（(]\s*[、，,;:：・]|[、，,;・]\s*[）)]"),
    "entities": re.compile(r"&(?:[a-zA-Z]+|#\d+);"),
    "brackets": re.compile(r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}"),
    "tags": re.compile(r"</?(?:ref|br|small|sup|sub|div|span|gallery|nowiki|math)\b"),
    "bare headings": re.compile(r"^[^。\n]{1,40}\.$", re.M),
    "|thumb": re.compile(r"\|\s*(?:thumb|サムネイル|left|right)\b"),
}


def leftovers(texts: list[str]) -> dict[str, int]:
    return {name: sum(len(pattern.findall(text)) for text in texts) for name, pattern in LEFTOVERS.items()}


def texts_of(files: list[Path]) -> list[str]:
    return [json.loads(line)["text"] for file in files for line in file.read_text(encoding="utf8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path)
    parser.add_argument("--peer", default="wikiextractor", help="the wikiextractor command")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        course = Path(sys.executable).with_name("course")

        def ours(workers: int) -> None:
            command = [
                course,
                "corpus",
                "wikipedia",
                options.dump,
                "-o",
                folder / "ours.jsonl",
                "--workers",
                str(workers),
            ]
            subprocess.run(command, check=True, capture_output=True)

        def peer(workers: int) -> None:
            command = [options.peer, options.dump, "--json", "-o", folder / "peer", "--processes", str(workers), "-q"]
            subprocess.run(command, check=True, capture_output=True)

        for workers in (1, 2):
            mine, other, ratio = by_turns(lambda workers=workers: ours(workers), lambda workers=workers: peer(workers))  # type: ignore[misc]
            print(f"{workers} processes: ours {mine:.2f} s, wikiextractor {other:.2f} s, time ratio {ratio:.2f} (<= 1)")
        mine_left = leftovers(texts_of([folder / "ours.jsonl"]))
        other_left = leftovers(texts_of(sorted((folder / "peer").rglob("wiki_*"))))
    for kind in LEFTOVERS:
        print(f"{kind:<16} ours {mine_left[kind]:>5}   wikiextractor {other_left[kind]:>5}")
    print(f"{'all':<16} ours {sum(mine_left.values()):>5}   wikiextractor {sum(other_left.values()):>5} (<= a tenth)")


if __name__ == "__main__":
    main()
