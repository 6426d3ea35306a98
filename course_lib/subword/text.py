"""Streams of tokenizer training text: segmented lines unchanged, documents as normalized sentences.

Large modules are imported in the functions that use them, because numpy alone takes a sixth of the memory needed to
train a small BPE tokenizer.
"""

import codecs
import random
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tokenizers import pre_tokenizers

from course_lib.documents import read_texts
from course_lib.errors import CourseError
from course_lib.files import CHUNK, open_binary, require_file

# A character that has occurred this often is common, and `alphabet` stops counting it.
COMMON = 16
# Characters that are whitespace in Python, but not in Unicode and `tokenizers`.
SEPARATORS = "\x1c\x1d\x1e\x1f"


def is_segmented(paths: Iterable[Path]) -> bool:
    """Return True for segmented lines (.txt, from `course segment`) and False for documents (.jsonl).

    Raises CourseError if the files are of both kinds or have another suffix.
    """
    kinds = {path.suffix for path in map(require_file, paths)}
    if kinds not in ({".txt"}, {".jsonl"}):
        raise CourseError(
            f"inputs end in {', '.join(sorted(kinds)) or 'nothing'}; "
            "allowed: all .jsonl (documents) or all .txt (segmented)"
        )
    return kinds == {".txt"}


def sentences(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the normalized sentences in JSONL documents; memory use does not depend on the file sizes.

    Raises CourseError with the file and line if a file cannot be read.
    """
    from course_lib.japanese import normalize, split_sentences

    for path in paths:
        for text in read_texts(path):
            yield from split_sentences(normalize(text))


@contextmanager
def as_lines(
    sources: Sequence[Path], segmented: bool, folder: Path, written: Callable[[str], str] = str
) -> Iterator[list[Path]]:
    """Open a context that provides the training text as files with one sentence per line.

    Segmented files are already in this format. The sentences in documents are converted by `written` and written to a
    file in `folder`, which is deleted when the context ends. Without this file, a caller that counts or samples
    sentences before training would normalize them twice. Raises CourseError if the documents contain no sentences.
    """
    if segmented:
        yield list(sources)
        return
    path = folder / "sentences.txt"
    with open(path, "w", encoding="utf8", newline="\n") as file:
        file.writelines(f"{written(sentence)}\n" for sentence in sentences(sources))
    if not path.stat().st_size:
        raise CourseError(f"{', '.join(map(str, sources))}: no text to train on")
    try:
        yield [path]
    finally:
        path.unlink()


def alphabet(paths: Sequence[Path], limit: int, always: str = "", never: str = "") -> list[str]:
    """Return the characters that get an entry of their own, sorted by code point: `always` and the most frequent ones.

    There are at most `limit` of them, including those in `always`, and none is in `never` or is whitespace. If
    characters are equally frequent, those with smaller code points are preferred, so that the same text always gives
    the same alphabet. Raises CourseError naming the first line that is not UTF-8.
    """
    counts, room = Counter[str](), max(limit - len(always), 0)
    for _, block in _blocks(paths):
        # Stop counting common characters, because the choice among rare characters does not depend on them. Searching
        # for the remaining characters takes a fifth of the time needed to count all characters.
        common = "".join(c for c, number in counts.items() if number >= COMMON)
        counts.update(re.findall(f"[^{re.escape(common)}]", block) if common else block)
    seen = [c for c in counts if c not in always + never and (not c.isspace() or c in SEPARATORS)]
    # If the limit falls among the common characters, their exact counts are needed.
    if len(seen) > room and sorted(counts[c] for c in seen)[-room] >= COMMON:
        counts = _counts(paths)
    kept = sorted(seen, key=lambda c: (-counts[c], c))[:room]
    return sorted({*always[:limit], *kept})


def _counts(paths: Iterable[Path]) -> Counter[str]:
    """Return how often each character occurs in the files."""
    import numpy as np

    codes = 0x110000
    counts = np.zeros(codes, np.int64)
    for _, block in _blocks(paths):
        counts += np.bincount(np.frombuffer(block.encode("utf-32-le"), np.uint32), minlength=codes)
    return Counter({chr(code): int(counts[code]) for code in np.flatnonzero(counts)})


def _blocks(paths: Iterable[Path]) -> Iterator[tuple[bytes, str]]:
    """Yield the content of the files in blocks, as bytes and as text.

    Raises CourseError naming the first line that is not UTF-8.
    """
    for path in paths:
        decoder = codecs.getincrementaldecoder("utf8")()
        try:
            # Read blocks, because reading line by line takes several times as long.
            with open_binary(path) as file:
                while block := file.read(CHUNK):
                    yield block, decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            # Read the file again line by line: read_texts raises the error that names the line.
            deque(read_texts(path), maxlen=0)


def check_lines(paths: Iterable[Path], longest: int) -> tuple[int, int]:
    """Return the number of non-empty lines, and the number of lines longer than `longest` bytes.

    Raises CourseError naming the first line that is not UTF-8.
    """
    import numpy as np

    lines = longer = 0
    for path in paths:
        # Length of the unfinished line at the end of the previous block [bytes].
        unfinished = 0
        for block, _ in _blocks([path]):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            lengths = np.diff(ends, prepend=-1 - unfinished) - 1
            lines += int(np.count_nonzero(lengths))
            longer += int(np.count_nonzero(lengths > longest))
            unfinished = len(block) - int(ends[-1]) - 1 if len(ends) else unfinished + len(block)
        lines += unfinished > 0
        longer += unfinished > longest
    return lines, longer


def drawn(paths: Iterable[Path], lines: int, wanted: int) -> Iterator[bytes]:
    """Yield `wanted` randomly selected non-empty lines (0: all) in file order, the same ones in every call.

    `lines` is the total number of non-empty lines in all files.
    """
    rng = random.Random(0)
    left, missing = lines, min(wanted or lines, lines)
    for path in paths:
        with open(path, "rb") as file:
            for line in file:
                if not (line := line.rstrip(b"\n")):
                    continue
                # Selection sampling (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S) needs one pass and
                # holds no lines in memory.
                if missing == left or rng.random() * left < missing:
                    missing -= 1
                    yield line
                left -= 1


@contextmanager
def sample(paths: Sequence[Path], wanted: int, folder: Path) -> Iterator[Sequence[Path]]:
    """Open a context that provides `wanted` lines of the files, or the files themselves if they have no more lines.

    The lines are those that `drawn` yields; 0 means all lines. They are written to a file in `folder`, which is deleted
    when the context ends.
    """
    lines = check_lines(paths, 0)[0] if wanted else 0
    if lines <= wanted:
        yield paths
        return
    path = folder / "sample.txt"
    with open(path, "wb") as file:
        file.writelines(line + b"\n" for line in drawn(paths, lines, wanted))
    try:
        yield [path]
    finally:
        path.unlink()


def pieces(lines: Iterable[str]) -> Iterator[str]:
    """Yield the pieces that a BPE trainer reads from lines of text, which the Whitespace pre-tokenizer splits."""
    pre_tokenizer = pre_tokenizers.Whitespace()
    for line in lines:
        for piece, _ in pre_tokenizer.pre_tokenize_str(line):
            yield piece
