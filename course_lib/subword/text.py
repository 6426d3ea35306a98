"""Streams of tokenizer training text: segmented lines unchanged, documents as normalized sentences."""

import codecs
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tokenizers import pre_tokenizers

from course_lib.documents import read_texts
from course_lib.errors import CourseError
from course_lib.files import CHUNK, open_binary, require_file
from course_lib.japanese import normalize, split_sentences

# Characters that are whitespace in Python, but not in Unicode and `tokenizers`.
SEPARATORS = "\x1c\x1d\x1e\x1f"


def is_segmented(paths: Iterable[Path]) -> bool:
    """Return True for segmented lines (.txt, from `course segment`) and False for documents (.jsonl)."""
    kinds = {path.suffix for path in map(require_file, paths)}
    if kinds not in ({".txt"}, {".jsonl"}):
        raise CourseError(
            f"inputs end in {', '.join(sorted(kinds)) or 'nothing'}; "
            "allowed: all .jsonl (documents) or all .txt (segmented)"
        )
    return kinds == {".txt"}


def sentences(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the normalized sentences in JSONL documents; memory use does not depend on the file sizes."""
    for path in paths:
        for text in read_texts(path):
            yield from split_sentences(normalize(text))


@contextmanager
def as_lines(
    sources: Sequence[Path], segmented: bool, folder: Path, written: Callable[[str], str] = str
) -> Iterator[list[Path]]:
    """Open a context that provides the training text as files with one sentence per line.

    Segmented files are in this format. The sentences of documents are converted by `written` into a file in `folder`,
    which is deleted at the end, so that a caller may read them several times.
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

    There are at most `limit` of them, none in `never` and no whitespace. Among equally frequent characters, those with
    smaller code points are preferred, so that the same text always gives the same alphabet.
    """
    codes = 0x110000
    counts = np.zeros(codes, np.int64)
    for _, block in _blocks(paths):
        counts += np.bincount(np.frombuffer(block.encode("utf-32-le"), np.uint32), minlength=codes)
    seen = [chr(code) for code in np.flatnonzero(counts)]
    fit = [c for c in seen if c not in always + never and (not c.isspace() or c in SEPARATORS)]
    most = sorted(fit, key=lambda c: (-counts[ord(c)], c))[: max(limit - len(always), 0)]
    return sorted({*always[:limit], *most})


def _blocks(paths: Iterable[Path]) -> Iterator[tuple[bytes, str]]:
    """Yield the content of the files in blocks, as bytes and as text."""
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
    """Return the number of non-empty lines, and the number of lines longer than `longest` bytes."""
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
    """Yield `wanted` (0: all) of the `lines` non-empty lines, drawn at random, the same ones in every call."""
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
    """Open a context that provides a file of the lines that `drawn` yields, or the files if they have no more."""
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
