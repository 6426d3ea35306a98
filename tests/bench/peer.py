"""What the comparisons with other engines share. They also run without the course, so it needs only Python."""

import argparse
from collections.abc import Callable
from pathlib import Path


def agree(first: list[int], second: list[int]) -> int:
    """Return the number of equal tokens at the start."""
    same = [one == other for one, other in zip(first, second, strict=False)]
    return same.index(False) if False in same else len(same)


def main(
    about: str | None,
    write: Callable[[Path, Path, Path], None],
    compare: Callable[[Path, Path], None],
    tokens: Callable[[Path, Path], None] | None = None,
) -> None:
    """Run one of the parts: `write MODEL WORLD -o FILE`, `compare MODEL FILE` or, if there is one, `tokens MODEL FILE`."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    first = parts.add_parser("write")
    first.add_argument("model", type=Path)
    first.add_argument("world", type=Path)
    first.add_argument("-o", dest="target", type=Path, required=True)
    others = {"compare": compare} | ({"tokens": tokens} if tokens else {})
    for name in others:
        other = parts.add_parser(name)
        other.add_argument("model", type=Path)
        other.add_argument("source", type=Path)
    args = parser.parse_args()
    if args.part == "write":
        write(args.model, args.world, args.target)
    else:
        others[args.part](args.model, args.source)
