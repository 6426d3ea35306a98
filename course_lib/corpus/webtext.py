"""Cleaning pipeline for web text in CC-100 format, which writes the documents as JSON Lines.

CC-100 has one line per paragraph and an empty line between documents. A single pass reads whole documents (webfile.py),
filters them in worker processes, and removes duplicates in this process, in order: first exact duplicates of documents,
then near-duplicates, and finally duplicates of long lines. A duplicate document therefore counts as one document rather
than as many lines. The output is the same for any number of workers. Memory grows only with the search for duplicates:
8 bytes per document and per long line, plus the bytes given in dedup.py for near-duplicates. The module does not look
for personal data or offensive words.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import orjson

from course_lib.corpus.config import WebtextConfig
from course_lib.corpus.dedup import NearDuplicates, Seen, Signatures, signatures, text_hash
from course_lib.corpus.filters import FILTERS, first_failure
from course_lib.corpus.report import Report
from course_lib.corpus.webfile import Batch, Documents
from course_lib.errors import CourseError
from course_lib.files import atomic_write, require_file, require_other
from course_lib.parallel import ordered_map
from course_lib.progress import progress

LINE_BREAK = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# Control and invisible characters, except U+200D, which joins emoji.
CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")


@dataclass
class _Filtered:
    """A worker's result for a batch: the documents that passed the filters, with their MinHash signatures."""

    report: Report
    numbers: list[int]  # running numbers of the documents in the input
    texts: list[str]
    signatures: Signatures


def clean_webtext(source: Path, target: Path, settings: WebtextConfig | None = None, workers: int = 1) -> Report:
    """Filter and deduplicate `source`, write {"id", "text"} lines to `target` and return the report.

    The source is a .txt, .txt.xz, .txt.gz or .txt.bz2 file. The id is the running number of the document in the input,
    from 1. If no document passes, the output is an empty file and the report says so; this is not an error.

    Raises CourseError if the source is not a text file (a directory, an empty file, UTF-16, or content that does not
    match the suffix). Raises CourseError with the byte position if the data is truncated or broken; `<target>.partial`
    then holds the documents before the damage.
    """
    settings = settings or WebtextConfig()
    report = Report("webtext", source.name, limits=_limits(settings), examples=settings.examples)
    documents = Documents(source, settings.max_line_bytes, settings.max_document_bytes)
    size = require_file(source).stat().st_size
    require_other(source, target)
    repeats = _Repeats(settings, report)
    with atomic_write(target, keep_partial=True) as out, progress(size, "B", f"cleaning {source.name}") as bar:
        for read, filtered in ordered_map(partial(_filter, settings), documents, workers):
            report.merge(filtered.report)
            for number, text in repeats.remove(filtered):
                report.keep(text)
                out.write(orjson.dumps({"id": str(number), "text": text}, option=orjson.OPT_APPEND_NEWLINE))
            bar.update(read)
        if documents.problem:
            raise CourseError(documents.problem)
        if not report.documents_in:
            raise CourseError(f"{source}: no document in it, only white space")
    return report


def _filter(settings: WebtextConfig, batch: Batch) -> tuple[int, _Filtered]:
    """Clean and filter one batch in a worker; return the number of file bytes that the batch covers, and the result."""
    report = Report(examples=settings.examples)
    numbers, texts = [], []
    for number, raw in enumerate(batch.documents, batch.first):
        text = "\n".join(_clean_lines(raw, number, report))
        report.enter(text)
        failure = first_failure(text, settings.filters)
        if failure:
            report.remove(failure[0], str(number), text, f"{failure[1]:.4g}")
        else:
            numbers.append(number)
            texts.append(text)
    for _ in range(batch.long_lines):
        report.remove_line("too_long")
    report.count("documents cut in two", batch.cut)
    near = settings.dedup.near_duplicates
    return batch.read, _Filtered(report, numbers, texts, signatures(texts if near else [], settings.dedup))


def _clean_lines(raw: bytes, number: int, report: Report) -> Iterator[str]:
    """Return the non-empty lines of a document, stripped and without control characters.

    Lines that are not UTF-8 are removed and counted in `report`.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        good = []
        for line in raw.split(b"\n"):
            try:
                good.append(line.decode())
            except UnicodeDecodeError:
                report.remove_line("invalid_utf8", str(number))
        text = "\n".join(good)
    text = CONTROL.sub("", LINE_BREAK.sub("\n", text))
    return (line for line in map(str.strip, text.split("\n")) if line)


class _Repeats:
    """The deduplication state for one run: all earlier documents and long lines."""

    def __init__(self, settings: WebtextConfig, report: Report) -> None:
        self._settings = settings
        self._report = report
        self._documents, self._lines = Seen(), Seen()
        self._near = NearDuplicates(settings.dedup) if settings.dedup.near_duplicates else None

    def remove(self, filtered: _Filtered) -> Iterator[tuple[int, str]]:
        """Yield the new documents in a batch as (number, text), without duplicate lines.

        The removed documents and lines are counted in the report.
        """
        new = self._documents.first_time(np.array([text_hash(text) for text in filtered.texts], dtype=np.uint64))
        for at in np.flatnonzero(~new):
            self._report.remove("duplicate", str(filtered.numbers[at]), filtered.texts[at])
        left = np.flatnonzero(new)
        if self._near:
            numbers = np.array(filtered.numbers, dtype=np.int64)[left]
            alike = self._near.add(filtered.signatures[left], numbers)
            for at, other in zip(left, alike, strict=True):
                if other >= 0:
                    number, text = str(filtered.numbers[at]), filtered.texts[at]
                    self._report.remove("near_duplicate", number, text, f"like {other}")
            left = left[alike < 0]
        yield from self._without_lines([(filtered.numbers[at], filtered.texts[at]) for at in left])

    def _without_lines(self, documents: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        shortest = self._settings.dedup.line_chars
        lines = [text.split("\n") for _, text in documents]
        long = [line for document in lines for line in document if len(line) >= shortest]
        new = iter(self._lines.first_time(np.array([text_hash(line) for line in long], dtype=np.uint64)).tolist())
        for (number, _), document in zip(documents, lines, strict=True):
            kept = []
            for line in document:
                if len(line) < shortest or next(new):
                    kept.append(line)
                else:
                    self._report.remove_line("duplicate_line", str(number), line)
            rest = "\n".join(kept)
            if len(kept) < len(document) and len("".join(rest.split())) < self._settings.filters.min_chars:
                self._report.remove("repeated_lines", str(number), rest, "too short without them")
            else:
                yield number, rest


def _limits(settings: WebtextConfig) -> dict[str, str]:
    limits = {test.name: test.limit(settings.filters) for test in FILTERS}
    limits["duplicate"] = "same text"
    if settings.dedup.near_duplicates:
        limits["near_duplicate"] = f">= {settings.dedup.similarity}"
    return limits | {"repeated_lines": f"< {settings.filters.min_chars} left"}
