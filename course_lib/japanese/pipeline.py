"""Segmentation of files of documents: one sentence per line, with an empty line between documents.

normalize.py, sentences.py and segment.py process a single text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from time import perf_counter

from course_lib.documents import LineBatch, path_list, read_batches, texts
from course_lib.errors import CourseError
from course_lib.files import OPENERS, atomic_write, require_file, require_other
from course_lib.japanese import mecab
from course_lib.japanese.config import SegmentConfig
from course_lib.japanese.jumanpp import JumanppSegmenter
from course_lib.japanese.normalize import normalize
from course_lib.japanese.segment import join
from course_lib.japanese.sentences import split_sentences
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.progress import progress
from course_lib.parallel import ordered_map


@dataclass
class SegmentReport:
    """Counts for a segmentation run or a batch."""

    documents: int = 0
    lines: int = 0
    words: int = 0
    bytes_read: int = 0
    unanalysed: int = 0  # pieces of text that Juman++ could not analyze, split only at whitespace
    seconds: float = 0.0  # wall-clock time

    def add(self, other: "SegmentReport") -> None:
        """Add the counts from a batch."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def summary(self) -> str:
        """Return the report as one line for the terminal."""
        seconds = max(self.seconds, 1e-9)
        message = tr_noop(
            "{documents} documents, {lines} lines, {words} words in {seconds:.1f} s ({rate:.0f} lines/s, "
            "{speed:.2f} MB/s)"
        )
        line = tr(message, rate=self.lines / seconds, speed=self.bytes_read / seconds / 1e6, **vars(self))
        left = tr("{number} pieces not analysed", number=self.unanalysed)
        return f"{line}; {left}" if self.unanalysed else line


def segment_file(
    sources: Path | Sequence[Path],
    target: Path,
    settings: SegmentConfig | None = None,
    workers: int = 1,
    may_be_empty: bool = False,
) -> SegmentReport:
    """Segment the documents in files, write the lines to `target` (UTF-8 text) and return the report.

    A source contains JSON Lines, or is a .txt file with an empty line between documents. Raises CourseError if there is
    only white space in them, unless the output `may_be_empty`.
    """
    settings, sources = settings or SegmentConfig(), path_list(sources)
    for source in sources:
        require_other(require_file(source), target)
    if settings.segmenter == "jumanpp":
        # Report a missing executable before any work.
        _jumanpp()
    total, started = SegmentReport(), perf_counter()
    # The decompressed size of a compressed file is unknown.
    packed = any(source.suffix in OPENERS for source in sources)
    size = None if packed else sum(source.stat().st_size for source in sources)
    names = ", ".join(source.name for source in sources)
    batches = chain.from_iterable(map(read_batches, sources))
    with atomic_write(target) as out, progress(size, "B", tr("segmenting {name}", name=names)) as bar:
        for content, report in ordered_map(partial(_segment_batch, settings), batches, workers):
            out.write(content)
            total.add(report)
            bar.update(report.bytes_read)
        if not (total.lines or may_be_empty):
            raise CourseError(f"{', '.join(map(str, sources))}: no text in it, only white space")
    total.seconds = perf_counter() - started
    return total


def _segment_batch(settings: SegmentConfig, batch: LineBatch) -> tuple[bytes, SegmentReport]:
    """Return a batch as segmented lines (UTF-8), with an empty line behind each document, and its counts."""
    documents = [split_sentences(normalize(text)) for text in texts(batch)]
    sentences = [sentence for document in documents for sentence in document]
    if settings.segmenter == "mecab":
        words, unanalysed = list(map(mecab.words, sentences)), 0
    else:
        words, unanalysed = _jumanpp().words(sentences)
    segmented = [join(each, settings.mark_spaces) for each in words]
    count = sum(line.count(" ") + 1 for line in segmented)
    lines = iter(segmented)
    blocks = ("\n".join(islice(lines, len(document))) + "\n\n" for document in documents if document)
    report = SegmentReport(len(documents), len(sentences), count, batch.size, unanalysed)
    return "".join(blocks).encode(), report


# This process's Juman++ segmenter, created on first use.
_jumanpp = cache(JumanppSegmenter.from_path)
