"""Streams of tokenizer training text: segmented lines unchanged, documents as normalized sentences."""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from course_lib.documents import read_texts
from course_lib.errors import CourseError
from course_lib.files import atomic_folder, require_file, require_other, work_folder
from course_lib.japanese import normalize, split_sentences


def is_segmented(paths: Iterable[Path]) -> bool:
    """Return True for segmented lines (.txt, from `course segment`) and False for documents (.jsonl)."""
    kinds = {path.suffix for path in map(require_file, paths)}
    if kinds not in ({".txt"}, {".jsonl"}):
        raise CourseError(
            f"inputs end in {', '.join(sorted(kinds)) or 'nothing'}; "
            "allowed: all .jsonl (documents) or all .txt (segmented)"
        )
    return kinds == {".txt"}


@contextmanager
def training(sources: Sequence[Path], target: Path) -> Iterator[tuple[bool, Path, Path]]:
    """Yield whether the text is segmented, the folder that will replace `target`, and a folder for temporary files."""
    segmented = is_segmented(sources)
    for source in sources:
        require_other(source, target)
    with atomic_folder(target) as product, work_folder(target) as work:
        yield segmented, product, work


def sentences(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the normalized sentences in JSONL documents; memory use does not depend on the file sizes."""
    for path in paths:
        for text in read_texts(path):
            yield from split_sentences(normalize(text))


def as_lines(
    sources: Sequence[Path], segmented: bool, work: Path, written: Callable[[str], str] = str
) -> Sequence[Path]:
    """Return the training text as files of one sentence per line; those of documents are `written` to `work`."""
    if segmented:
        return sources
    path = work / "sentences.txt"
    with open(path, "w", encoding="utf8", newline="\n") as file:
        file.writelines(f"{written(sentence)}\n" for sentence in sentences(sources))
    return [path]


def lines(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the lines of files, without empty lines."""
    for path in paths:
        try:
            # In this mode, \r and \r\n end a line, too.
            with open(path, encoding="utf8") as file:
                yield from filter(None, (line.rstrip("\n") for line in file))
        except UnicodeDecodeError:
            # Read the file again: read_texts raises the error that names the line.
            deque(read_texts(path), maxlen=0)


def alphabet(paths: Iterable[Path], limit: int, always: str = "", never: str = "") -> list[str]:
    """Return at most `limit` characters, sorted by code point: `always` and the most frequent ones, without whitespace.

    Characters in `never` are left out. Among equally frequent ones, the smaller code points come first, so that the
    same text gives the same alphabet.
    """
    counts: Counter[str] = Counter()
    for line in lines(paths):
        counts.update(line)
    fit = [c for c in counts if c not in always + never and not c.isspace()]
    most = sorted(fit, key=lambda c: (-counts[c], c))[: max(limit - len(always), 0)]
    return sorted({*always[:limit], *most})


def drawn(paths: Iterable[Path], count: int, wanted: int) -> Iterator[str]:
    """Yield `wanted` (0: all) of the `count` lines of files, drawn at random, the same ones in every call."""
    rng, missing = random.Random(0), min(wanted or count, count)
    for left, line in zip(range(count, 0, -1), lines(paths), strict=True):
        # Selection sampling (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S) needs one pass and has no
        # lines in memory.
        if missing == left or rng.random() * left < missing:
            missing -= 1
            yield line


def sample(paths: Sequence[Path], wanted: int, work: Path) -> Sequence[Path]:
    """Return a file in `work` with the lines that `drawn` yields, or the files if they have no more."""
    count = sum(1 for _ in lines(paths)) if wanted else 0
    if count <= wanted:
        return paths
    path = work / "sample.txt"
    with open(path, "w", encoding="utf8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in drawn(paths, count, wanted))
    return [path]
