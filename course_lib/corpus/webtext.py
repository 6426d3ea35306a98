"""Cleaning pipeline for web text in CC-100 format, which writes the documents as JSON Lines.

Worker processes read whole documents (webfile.py), filter them and compute what is compared. Repeats are then searched
for in the whole corpus (repeats.py): documents, near-duplicates, long lines. Worker processes finally remove them.

A folder next to the output holds the documents that passed the filters, with 8 · num_bands + num_perm + 24 bytes per
document and 8 bytes per long line. Memory holds about 40 bytes per document, 2 bytes per long line, and 400 MB per
worker.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import orjson

from course_lib.corpus.config import WebtextConfig
from course_lib.corpus.dedup import Hashes, band_hashes, signatures, text_hash
from course_lib.corpus.filters import FILTERS, first_failure
from course_lib.corpus.mask import mask_personal
from course_lib.corpus.repeats import Flags, near_repeats, repeats
from course_lib.corpus.report import CorpusReport
from course_lib.corpus.webfile import WebBatch, is_utf8, read_web
from course_lib.documents import path_list, with_newlines
from course_lib.errors import CourseError
from course_lib.files import atomic_write, require_file, require_other, work_folder
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.progress import progress
from course_lib.parallel import ordered_map

# Kind of mask → its name in the report.
MASKED = {
    "phone": tr_noop("phone numbers masked"),
    "mail": tr_noop("mail addresses masked"),
    "postal code": tr_noop("postal codes masked"),
}
# The number of the earlier document that a document resembles, or one of these: it is unique, or an exact duplicate.
UNIQUE, DUPLICATE = -1, 0
# A stored document that passed the filters, why it is removed, and which of its long lines are repeats.
FilteredDocument = tuple[bytes, int, Flags]
# Documents from which repeats are removed at a time, about 1 MB.
BATCH = 400
# The files in the work folder with one value per document or long line, beside one for each band.
COLUMNS = ("documents", "numbers", "hashes", "lines", "counts", "signatures")
# Control and invisible characters, except U+200D, which joins emoji.
CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")


@dataclass
class Filtered:
    """A worker's result for a batch: the documents that passed the filters, and what is compared."""

    report: CorpusReport
    documents: bytes  # JSON lines [number, text]
    numbers: npt.NDArray[np.int64]  # running numbers in the input, [documents]
    hashes: Hashes  # [documents]
    lines: Hashes  # hashes of the long lines of all documents, [lines]
    counts: npt.NDArray[np.int64]  # number of long lines, [documents]
    signatures: npt.NDArray[np.uint8]  # lowest bytes of the MinHash values, [documents, num_perm]
    bands: Hashes  # [documents, num_bands]
    read: int  # bytes of the file that the batch covers


def clean_webtext(
    sources: Path | Sequence[Path], target: Path, settings: WebtextConfig | None = None, workers: int = 1
) -> CorpusReport:
    """Filter and deduplicate files as one corpus, write {"id", "text"} lines to `target` and return the report.

    The sources are .txt, .txt.xz, .txt.gz or .txt.bz2 files. The id is the running number of the document in the input,
    from 1. If no document passes, the output is an empty file and the report says so; this is not an error.

    Raises CourseError if a source is not a UTF-8 text file, or if its data is truncated or broken.
    """
    settings, sources = settings or WebtextConfig(), path_list(sources)
    names = ", ".join(source.name for source in sources)
    report = CorpusReport("webtext", names, limits=limits(settings), examples=settings.examples)
    size = sum(require_file(source).stat().st_size for source in sources)
    for source in sources:
        require_other(source, target)
    with atomic_write(target) as out, work_folder(target) as folder:
        with progress(size, "B", tr("cleaning {name}", name=names)) as bar:
            filtered = ordered_map(partial(filter_batch, settings), _read_all(sources, settings), workers)
            report.merge(write_columns(filtered, settings, folder.joinpath, bar.update))
        _write_without_repeats(folder, out, report, settings, workers)
        if not report.documents_in or not (report.characters_in or report.lines):
            raise CourseError(f"{names}: no document in it, only white space")
    return report


def _read_all(sources: Sequence[Path], settings: WebtextConfig) -> Iterator[WebBatch]:
    """Yield the batches of all files, with documents numbered through."""
    first = 1
    for source in sources:
        for batch in read_web(source, settings.max_line_bytes, settings.max_document_bytes, first):
            yield batch
            first = batch.first + len(batch.documents)


def filter_batch(settings: WebtextConfig, batch: WebBatch) -> Filtered:
    """Clean and filter one batch in a worker."""
    report = CorpusReport(examples=settings.examples)
    numbers, texts = [], []
    for number, raw in enumerate(batch.documents, batch.first):
        lines, bad = _clean_lines(raw)
        for _ in range(bad):
            report.remove_line("invalid_utf8", str(number))
        text = "\n".join(lines)
        if settings.filters.mask_personal:
            # Before the filters, so that the report's examples are masked, too.
            text, masks = mask_personal(text)
            for kind, count in masks.items():
                report.count(MASKED[kind], count)
        report.enter(text)
        if failure := first_failure(text, settings.filters):
            report.remove(failure[0], str(number), text, f"{failure[1]:.4g}")
        else:
            numbers.append(number)
            texts.append(text)
    for _ in range(batch.too_long):
        report.remove_line("too_long")
    report.count(tr_noop("documents cut in two"), batch.cut)
    long_lines = [[line for line in text.split("\n") if len(line) >= settings.dedup.line_chars] for text in texts]
    minhash = signatures(texts if settings.dedup.near_duplicates else [], settings.dedup)
    return Filtered(
        report,
        documents=b"".join(
            orjson.dumps([number, text], option=orjson.OPT_APPEND_NEWLINE)
            for number, text in zip(numbers, texts, strict=True)
        ),
        numbers=np.array(numbers, dtype=np.int64),
        hashes=np.array([text_hash(text) for text in texts], dtype=np.uint64),
        lines=np.array([text_hash(line) for lines in long_lines for line in lines], dtype=np.uint64),
        counts=np.array([len(lines) for lines in long_lines], dtype=np.int64),
        signatures=minhash.astype(np.uint8),
        bands=band_hashes(minhash, settings.dedup.num_bands),
        read=batch.read,
    )


def write_columns(
    filtered: Iterable[Filtered],
    settings: WebtextConfig,
    path: Callable[[str], Path],
    update: Callable[[int], object] = int,
) -> CorpusReport:
    """Write each of COLUMNS and of the bands to the file `path(name)`, and return the report of all batches."""
    report, bands = CorpusReport(examples=settings.examples), _bands(settings)
    with ExitStack() as opened:
        files = {name: opened.enter_context(open(path(name), "wb")) for name in (*COLUMNS, *bands)}
        for batch in filtered:
            report.merge(batch.report)
            for name in COLUMNS:
                files[name].write(getattr(batch, name))
            for band, name in enumerate(bands):
                files[name].write(batch.bands[:, band].tobytes())
            update(batch.read)
    return report


def _bands(settings: WebtextConfig) -> list[str]:
    """Return the names of the files with a hash of each band; none if near-duplicates stay."""
    if not settings.dedup.near_duplicates:
        return []
    return [f"band-{band:04}" for band in range(settings.dedup.num_bands)]


def _write_without_repeats(
    folder: Path, out: IO[bytes], report: CorpusReport, settings: WebtextConfig, workers: int
) -> None:
    """Search for repeats, write the documents without them, and count what is removed in the report."""
    num_perm, needed = settings.dedup.num_perm, settings.dedup.similarity * settings.dedup.num_perm
    numbers, counts = (np.fromfile(folder / name, dtype=np.int64) for name in ("numbers", "counts"))
    exact = repeats(folder / "hashes", workers=workers, label=tr_noop("duplicates"))
    bands = [folder / name for name in _bands(settings)]
    earliest = near_repeats(bands, folder / "signatures", (len(numbers), num_perm), needed, workers)
    near = earliest >= 0
    # Lines of documents that are removed are not searched.
    np.repeat(~(exact | near), counts).tofile(folder / "line-mask")
    line_repeats = repeats(folder / "lines", folder / "line-mask", workers, tr_noop("repeated lines"))
    reasons = np.full(len(numbers), UNIQUE)
    reasons[near] = numbers[earliest[near]]
    reasons[exact] = DUPLICATE

    batches = read_filtered(folder / "documents", reasons, counts, line_repeats)
    with progress(len(numbers), "doc", "removing repeats") as bar:
        for of_batch, written in ordered_map(partial(remove_repeats, settings), batches, workers):
            report.merge(of_batch)
            out.write(written)
            bar.update(of_batch.documents_out + sum(removed.count for removed in of_batch.removed.values()))


def read_filtered(
    path: Path, reasons: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], line_repeats: Flags
) -> Iterator[list[FilteredDocument]]:
    """Yield batches of the documents in a file, one a line; `counts` are the numbers of their long lines."""
    batch: list[FilteredDocument] = []
    # Position in `line_repeats` of the document's first long line.
    first = 0
    with open(path, "rb") as file:
        for stored, reason, count in zip(file, reasons, counts, strict=True):
            batch.append((stored, int(reason), line_repeats[first : first + count]))
            first += int(count)
            if len(batch) == BATCH:
                yield batch
                batch = []
    if batch:
        yield batch


def remove_repeats(settings: WebtextConfig, batch: list[FilteredDocument]) -> tuple[CorpusReport, bytes]:
    """Remove repeats from a batch in a worker; return the counts and the JSON lines that are left."""
    report, lines = CorpusReport(examples=settings.examples), []
    for stored, reason, flags in batch:
        number, text = orjson.loads(stored)
        if reason == DUPLICATE:
            report.remove("duplicate", str(number), text)
        elif reason != UNIQUE:
            report.remove("near_duplicate", str(number), text, f"like {reason}")
        elif (rest := _without_lines(text, flags, number, report, settings)) is not None:
            report.keep(rest)
            lines.append(orjson.dumps({"id": str(number), "text": rest}, option=orjson.OPT_APPEND_NEWLINE))
    return report, b"".join(lines)


def _without_lines(
    text: str, repeated: Flags, number: int, report: CorpusReport, settings: WebtextConfig
) -> str | None:
    """Return a text without its repeated long lines; None if too little is left."""
    if not repeated.any():
        return text
    lines, flags = [], iter(repeated.tolist())
    for line in text.split("\n"):
        if len(line) >= settings.dedup.line_chars and next(flags):
            report.remove_line("duplicate_line", str(number), line)
        else:
            lines.append(line)
    rest = "\n".join(lines)
    if len("".join(rest.split())) < settings.filters.min_chars:
        report.remove("repeated_lines", str(number), rest, "too short without them")
        return None
    return rest


def _clean_lines(raw: bytes) -> tuple[list[str], int]:
    """Return the non-empty lines of a document without control characters, and the number of those not in UTF-8."""
    lines = [raw] if is_utf8(raw) else raw.split(b"\n")
    decodable = list(filter(is_utf8, lines))
    text = CONTROL.sub("", with_newlines(b"\n".join(decodable).decode()))
    stripped = map(str.strip, text.split("\n"))
    return list(filter(None, stripped)), len(lines) - len(decodable)


def limits(settings: WebtextConfig) -> dict[str, str]:
    """Return the possible reasons for removing a document, each with its threshold as text, for the report."""
    found = {each.name: each.limit(settings.filters) for each in FILTERS}
    found["duplicate"] = tr_noop("same text")
    if settings.dedup.near_duplicates:
        found["near_duplicate"] = f">= {settings.dedup.similarity}"
    return found | {"repeated_lines": f"< {settings.filters.min_chars}"}
