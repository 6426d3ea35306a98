"""The training text of a tokenizer, streamed: segmented lines as they are, documents as normalized sentences.

The modules that are large in memory are imported where they are used: numpy alone is a sixth of the memory of a small BPE training.
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

COMMON = 16  # occurrences
SEPARATORS = "\x1c\x1d\x1e\x1f"  # white space to Python, not to Unicode and `tokenizers`


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
    from course_lib.japanese import normalize, split_sentences

    for path in paths:
        for text in read_texts(path):
            yield from split_sentences(normalize(text))


@contextmanager
def as_lines(
    sources: Sequence[Path], segmented: bool, folder: Path, written: Callable[[str], str] = str
) -> Iterator[list[Path]]:
    """Yields the training text as files with a sentence a line.

    Segmented files are such files. The sentences of documents are kept in `folder` while the block runs, each as `written` gives
    it: who counts them before training, or draws some, would have to normalize them twice. Raises CourseError if there is none.
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
    """The characters that get an entry of their own: `always`, then the most frequent ones, `limit` in all.

    Of equally frequent ones the smaller code points, so that the same text gives the same alphabet. White space and `never`
    are left out. Raises CourseError naming the first line that is not UTF-8.
    """
    counts, room = Counter[str](), max(limit - len(always), 0)
    for _, block in _blocks(paths):
        # Characters that have become common are not counted further: which rare ones to keep does not depend on them, and
        # looking for the others takes a fifth of the time of counting all.
        common = "".join(c for c, number in counts.items() if number >= COMMON)
        counts.update(re.findall(f"[^{re.escape(common)}]", block) if common else block)
    seen = [c for c in counts if c not in always + never and (not c.isspace() or c in SEPARATORS)]
    if len(seen) > room and sorted(counts[c] for c in seen)[-room] >= COMMON:
        counts = _counts(paths)
    kept = sorted(seen, key=lambda c: (-counts[c], c))[:room]
    return sorted({*always[:limit], *kept})


def _counts(paths: Iterable[Path]) -> Counter[str]:
    """How often each character occurs."""
    import numpy as np

    codes = 0x110000
    counts = np.zeros(codes, np.int64)
    for _, block in _blocks(paths):
        counts += np.bincount(np.frombuffer(block.encode("utf-32-le"), np.uint32), minlength=codes)
    return Counter({chr(code): int(counts[code]) for code in np.flatnonzero(counts)})


def _blocks(paths: Iterable[Path]) -> Iterator[tuple[bytes, str]]:
    """The content of the files in blocks, as bytes and as text. Raises CourseError naming the first line that is not UTF-8."""
    for path in paths:
        decoder = codecs.getincrementaldecoder("utf8")()
        try:
            with open_binary(path) as file:  # in blocks: reading line by line would cost several times as much
                while block := file.read(CHUNK):
                    yield block, decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            deque(read_texts(path), maxlen=0)  # line by line, to name the one


def check_lines(paths: Iterable[Path], longest: int) -> tuple[int, int]:
    """(lines that are not empty, those of them longer than `longest` bytes). Raises CourseError naming the first line that is not UTF-8."""
    import numpy as np

    lines = longer = 0
    for path in paths:
        begun = 0  # bytes of the line that the block before broke off
        for block, _ in _blocks([path]):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            lengths = np.diff(ends, prepend=-1 - begun) - 1
            lines += int(np.count_nonzero(lengths))
            longer += int(np.count_nonzero(lengths > longest))
            begun = len(block) - int(ends[-1]) - 1 if len(ends) else begun + len(block)
        lines += begun > 0
        longer += begun > longest
    return lines, longer


def drawn(paths: Iterable[Path], lines: int, wanted: int) -> Iterator[bytes]:
    """`wanted` of the files' `lines` lines that are not empty, in their order; all of them for 0. The same ones every time."""
    chance = random.Random(0)
    left, missing = lines, min(wanted or lines, lines)
    for path in paths:
        with open(path, "rb") as file:
            for line in file:
                if not (line := line.rstrip(b"\n")):
                    continue
                # Selection sampling (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S): one pass, nothing is held.
                if missing == left or chance.random() * left < missing:
                    missing -= 1
                    yield line
                left -= 1


def pieces(path: Path) -> Iterator[str]:
    """What a BPE trainer sees of a file: the pieces that the Whitespace pre-tokenizer cuts its lines into."""
    pre_tokenizer = pre_tokenizers.Whitespace()
    lines = path.read_text(encoding="utf8").split("\n") if path.suffix == ".txt" else sentences([path])
    for line in lines:
        for piece, _ in pre_tokenizer.pre_tokenize_str(line):
            yield piece
