"""The training text of a tokenizer, streamed: segmented lines as they are, documents as normalized sentences."""

import codecs
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from tokenizers import pre_tokenizers

from course_lib.documents import read_texts
from course_lib.errors import CourseError
from course_lib.files import CHUNK, open_binary, require_file
from course_lib.japanese import normalize, split_sentences


def is_segmented(paths: Iterable[Path]) -> bool:
    """Whether the files are segmented lines (.txt, from `course segment`) or documents (.jsonl). Raises CourseError for a mixture."""
    kinds = {path.suffix for path in map(require_file, paths)}
    if kinds not in ({".txt"}, {".jsonl"}):
        raise CourseError(
            f"inputs end in {', '.join(sorted(kinds)) or 'nothing'}; allowed: all .jsonl (documents) or all .txt (segmented)"
        )
    return kinds == {".txt"}


def sentences(paths: Iterable[Path]) -> Iterator[str]:
    """The sentences of JSONL documents, normalized; memory does not depend on the files.

    Raises CourseError naming file and line of what cannot be read.
    """
    for path in paths:
        for text in read_texts(path):
            yield from split_sentences(normalize(text))


def check_lines(paths: Iterable[Path], longest: int = 1 << 62) -> int:
    """How many lines of the .txt files are longer than `longest` bytes. Raises CourseError naming the first line that is not UTF-8."""
    longer = 0
    for path in paths:
        decoder = codecs.getincrementaldecoder("utf8")()
        begun = 0  # bytes of the line that the block before broke off
        try:
            with open_binary(path) as file:  # in blocks: reading line by line would cost several times as much
                while block := file.read(CHUNK):
                    decoder.decode(block)
                    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
                    lengths = np.diff(ends, prepend=-1 - begun) - 1
                    longer += int(np.count_nonzero(lengths > longest))
                    begun = len(block) - int(ends[-1]) - 1 if len(ends) else begun + len(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            deque(read_texts(path), maxlen=0)  # line by line, to name the one
        longer += begun > longest
    return longer


class Measured:
    """Sentences on their way to a trainer, with a count of those longer than `longest` bytes."""

    def __init__(self, lines: Iterable[str], longest: int) -> None:
        self.lines, self.longest, self.longer = lines, longest, 0

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            if 4 * len(line) > self.longest and len(line.encode()) > self.longest:
                self.longer += 1
            yield line


def pieces(path: Path) -> Iterator[str]:
    """What a BPE trainer sees of a file: the pieces that the Whitespace pre-tokenizer cuts its lines into."""
    pre_tokenizer = pre_tokenizers.Whitespace()
    lines = path.read_text(encoding="utf8").split("\n") if path.suffix == ".txt" else sentences([path])
    for line in lines:
        for piece, _ in pre_tokenizer.pre_tokenize_str(line):
            yield piece
