"""What the comparisons with other engines share. They also run without the course, so it needs only Python."""

import argparse
from collections.abc import Callable
from pathlib import Path


def agree(first: list[int], second: list[int]) -> int:
    """Return the number of equal tokens at the start."""
    same = [one == other for one, other in zip(first, second, strict=False)]
    return same.index(False) if False in same else len(same)


def main(about: str | None, write: Callable[[Path, Path, Path], None], compare: Callable[[Path, Path], None]) -> None:
    """Run one of the two halves: `write MODEL WORLD -o FILE` or `compare MODEL FILE`."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    halves = parser.add_subparsers(dest="half", required=True)
    first, second = halves.add_parser("write"), halves.add_parser("compare")
    first.add_argument("model", type=Path)
    first.add_argument("world", type=Path)
    first.add_argument("-o", dest="target", type=Path, required=True)
    second.add_argument("model", type=Path)
    second.add_argument("source", type=Path)
    args = parser.parse_args()
    if args.half == "write":
        write(args.model, args.world, args.target)
    else:
        compare(args.model, args.source)
