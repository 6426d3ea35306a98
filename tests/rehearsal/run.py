"""`python -m tests.rehearsal.run [PROFILE …] [-o DIR] [--chapters 1 2 …]`: the whole course under each profile.

A folder of an earlier run is continued: what is fresh in it is not built again.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.files import read_json
from course_lib.workspace.chapters import CHAPTERS

from tests.rehearsal import PROFILES
from tests.rehearsal.stage import Stage, standing


@dataclass
class Outcome:
    """How a chapter's products and notebooks went."""

    chapter: str
    seconds: float
    processor: float  # seconds of processor time
    output: str
    problem: str  # empty if all is well


def rehearse(stage: Stage, chapters: Sequence[str]) -> Iterator[Outcome]:
    """Run chapters one after the other as `course run --notebooks` does, and yield how each went."""
    for chapter in chapters:
        started, used = time.perf_counter(), _of_children()
        command = [sys.executable, "-m", "course_lib.cli", "run", chapter, "--notebooks"]
        done = subprocess.run(command, env=stage.environment, capture_output=True, text=True, check=False)
        problem = (done.stderr.strip() or f"exit status {done.returncode}") if done.returncode else ""
        seconds, processor = time.perf_counter() - started, _of_children() - used
        yield Outcome(chapter, seconds, processor, done.stdout, problem)


def _of_children() -> float:
    """Return the processor time of the processes that this one has waited for, and of theirs [s]."""
    found = os.times()
    return found.children_user + found.children_system


def main() -> int:
    """Rehearse and print a table; return 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profiles", nargs="*", default=PROFILES, help=f"of {', '.join(PROFILES)}")
    parser.add_argument("-o", type=Path, help="folder; default: a new one, which is removed")
    parser.add_argument("--chapters", nargs="*", default=[str(chapter.number) for chapter in CHAPTERS])
    asked = parser.parse_args()
    failed = 0
    for name in asked.profiles:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (asked.o or Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            with standing(name, folder) as stage:
                for outcome in rehearse(stage, asked.chapters):
                    failed += bool(outcome.problem)
                    took = f"{outcome.seconds:.0f} s, {outcome.processor:.0f} s of processor time"
                    print(f"{name} chapter {outcome.chapter}: {took} {outcome.problem[-3000:]}", flush=True)
            for manifest in map(read_json, sorted((folder / "workspace").glob("*/*/*/manifest.json"))):
                print(f"  {manifest['product']:<30}{manifest['seconds']:6.1f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
