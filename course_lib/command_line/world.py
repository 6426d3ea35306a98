"""Verbs of the small world."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

from course_lib.command_line.output import Shown

LEAST = {"min": 1}


def write(
    target: Path,
    *,
    documents: Annotated[int, "number of documents", LEAST] = 12_000,
    seed: Annotated[int, "documents of two seeds differ; document i of a seed is always the same"] = 0,
) -> dict[str, float]:
    """Write documents of the small world as JSON Lines: text, genre, facts, and bits = −log₂ of its probability."""
    from course_lib.world.genres import write_documents

    return write_documents(target, documents, seed)


def check(
    texts: Annotated[Sequence[Path], "documents: .jsonl, or .txt with an empty line between; - reads standard input"],
    *,
    training: Annotated[Sequence[Path], "what the texts may have been copied from; repeatable"] = (),
) -> Shown:
    """Check texts against the small world, and print the shares of sentences, facts and copies."""
    from course_lib.documents import read_texts
    from course_lib.world.check import table

    found = table([*chain.from_iterable(map(read_texts, texts))], chain.from_iterable(map(read_texts, training)))
    lines = [
        f"{name:24} {value:.1%}" if isinstance(value, float) else f"{name:24} {value:,}"
        for name, value in found.items()
        if not isinstance(value, dict)
    ]
    for name in ("genres", "contradictions"):
        lines += [f"{name}: " + ", ".join(f"{kind} {count}" for kind, count in found[name].items())]
    return Shown(found, "\n".join(lines))
