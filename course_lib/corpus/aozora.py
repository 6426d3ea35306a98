"""Documents from Aozora Bunko's archive (github.com/aozorahack/aozorabunko_text): {"text", "title", "author", …}.

Workers turn files into works (aozora_work.py). This process then leaves out works that stand in others, and writes
`train.jsonl` and `held-out.jsonl` in an order by a hash of the file names, so that the beginning is a sample of all
authors. What the workers make, a part for each batch of files, stays in a hidden folder beside the output until all is
written: after a kill, the same call goes on from there. A part has whole works. `piece_characters` cuts a work into
pieces, each a document of the output.
"""

import os
import re
import shutil
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
from filelock import FileLock, Timeout

from course_lib.corpus.aozora_work import decode, is_japanese, is_new, read_work
from course_lib.corpus.config import AozoraConfig
from course_lib.corpus.dedup import text_hash
from course_lib.corpus.report import CorpusReport, characters, from_dict, write_report_to
from course_lib.errors import CourseError
from course_lib.files import atomic_folder, atomic_write, behind_links, read_record, require_other
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.progress import progress
from course_lib.parallel import ordered_map
from course_lib.settings.config import to_dict
from course_lib.workspace import sources

# The files of the output.
TRAIN, HELD_OUT, REPORT = "train.jsonl", "held-out.jsonl", "report.json"
# Bytes of files that a worker reads at a time.
BATCH = 2 << 20
# A last piece of a work with fewer characters is added to the one before.
SHORTEST_PIECE = 200
# Modules that fix what is in a part: other code makes the parts again.
CODE = ("corpus/aozora.py", "corpus/aozora_notation.py", "corpus/aozora_work.py")
CARDS = re.compile(".*/(cards/.*)")

HELD_OUT_WORKS = tr_noop("works held out")
HELD_OUT_CHARACTERS = tr_noop("characters held out")
PIECES = tr_noop("pieces")


class Archive(NamedTuple):
    """The text files of a clone, a folder or a zip."""

    sizes: dict[str, int]  # name in the archive, such as cards/000879/files/92_ruby_164/92_ruby_164.txt → bytes
    read: Callable[[str], bytes]

    def digest(self) -> str:
        """Return a digest of the names and sizes."""
        return blake2b(orjson.dumps(sorted(self.sizes.items())), digest_size=16).hexdigest()


class Entry(NamedTuple):
    """A work in a part: what decides on it, without its text."""

    file: str
    names: list[str]  # the author, the byline, the translator; a list of what is held out names any of them
    characters: int
    part: str  # the name of the part, and where in it the work's line begins and ends [bytes]
    start: int
    end: int
    hashes: npt.NDArray[np.uint64]  # of its long lines


def open_archive(source: Path) -> Archive:
    """Return the .txt files of a clone, a folder or a zip: those below cards/, or all if there is no such folder.

    Raises CourseError if there are none, or if the zip is truncated.
    """
    if not source.exists():
        raise CourseError(tr("{path}: no such file", path=source))
    found = _in_folder(source) if source.is_dir() else _in_zip(source)
    if cards := {name: size for name, size in found.sizes.items() if name.startswith("cards/")}:
        found = found._replace(sizes=cards)
    if not found.sizes:
        raise CourseError(
            tr("{path}: no .txt file in it; allowed: a clone of github.com/aozorahack/aozorabunko_text with its files, "
               "its zip, or a folder of it", path=source)
        )  # fmt: skip
    return found


def _in_folder(source: Path) -> Archive:
    paths: dict[str, Path] = {}
    for folder, inner, names in os.walk(source):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for path in (Path(folder, name) for name in names if name.endswith(".txt") and not name.startswith(".")):
            # A folder inside the archive, too, gives the names that the archive has.
            cards = CARDS.fullmatch(path.absolute().as_posix())
            paths[cards[1] if cards else path.relative_to(source).as_posix()] = path
    return Archive({name: path.stat().st_size for name, path in paths.items()}, lambda name: paths[name].read_bytes())


def _in_zip(source: Path) -> Archive:
    try:
        archive = zipfile.ZipFile(source)
    except zipfile.BadZipFile as error:
        message = tr_noop("{path}: not a zip, or a truncated one ({error}); allowed: a whole zip, or a folder")
        raise CourseError(tr(message, path=source, error=error)) from None
    infos = {}
    for info in archive.infolist():
        # GitHub puts a folder around the archive, and macOS adds files that begin with a dot.
        cards = CARDS.fullmatch(f"/{info.filename}")
        if info.filename.endswith(".txt") and "/." not in f"/{info.filename}":
            infos[cards[1] if cards else info.filename] = info

    def read(name: str) -> bytes:
        try:
            return archive.read(infos[name])
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise CourseError(tr("{path}: broken at {name}: {error}", path=source, name=name, error=error)) from None

    return Archive({name: info.file_size for name, info in infos.items()}, read)


def extract_aozora(source: Path, target: Path, settings: AozoraConfig | None = None, workers: int = 1) -> CorpusReport:
    """Write the works of an archive to the folder `target`, and return the report, which is in it, too.

    A line of `train.jsonl` and `held-out.jsonl` is a work, or a piece of one: {"text", "title", "subtitle", "author",
    "translator", "orthography", "file"}. The output does not depend on the number of workers.

    Raises CourseError if the archive has no text files, is a broken zip, or has no work that the list names.
    """
    settings = settings or AozoraConfig()
    require_other(source, target)
    archive = open_archive(source)
    report = CorpusReport("aozora", source.name, limits=limits(settings), examples=settings.examples)
    is_held_out = held_out(settings)
    made_of = {"archive": archive.digest(), "settings": to_dict(settings), "code": sources.digests(CODE)}
    with atomic_folder(target) as folder, unfinished(target, made_of) as parts:
        kept = _without_copies(_read_all(archive, parts, settings, report, workers), parts, settings, report)
        if settings.held_out and not any(map(is_held_out, kept)):
            message = tr_noop("{path}: no work of {source} is by its authors or one of its files; correct the list")
            raise CourseError(tr(message, path=settings.held_out, source=source))
        _write(kept, parts, folder, is_held_out, settings, report)
        write_report_to(folder / REPORT, report)
    return report


@contextmanager
def unfinished(target: Path, made_of: dict[str, Any]) -> Iterator[Path]:
    """Yield a hidden folder next to `target` for parts, with those of an earlier call that was made of the same.

    The folder is removed when the block ends without an error. Raises CourseError if another process writes to it.
    """
    resolved = behind_links(target)
    folder = resolved.with_name(f".{resolved.name}.parts")
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise CourseError(tr("{target}: another process is writing it", target=target)) from None
    try:
        record, wanted = folder / "made-of.json", orjson.dumps(made_of)
        if not record.exists() or record.read_bytes() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            record.write_bytes(wanted)
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        lock.release()


def _read_all(archive: Archive, parts: Path, settings: AozoraConfig, report: CorpusReport, workers: int) -> list[Entry]:
    """Return the works of all files in the order of their names; those of finished parts are not read again."""
    batches = [(f"{number:05}.jsonl", names) for number, names in enumerate(_batches(archive.sizes))]
    is_made = {name: (parts / name).exists() for name, _ in batches}
    missing = ((name, [(file, archive.read(file)) for file in files]) for name, files in batches if not is_made[name])
    made = ordered_map(partial(_read_batch, settings), missing, workers)
    entries: list[Entry] = []
    with progress(sum(archive.sizes.values()), "B", tr("reading {name}", name=report.source)) as bar:
        for name, files in batches:
            if not is_made[name]:
                with atomic_write(parts / name) as file:
                    file.write(next(made))
            entries += _read_index(parts / name, report)
            bar.update(sum(archive.sizes[each] for each in files))
    return entries


def _batches(sizes: dict[str, int]) -> Iterator[list[str]]:
    """Yield the names of files in order, about BATCH bytes at a time."""
    names: list[str] = []
    held = 0
    for name in sorted(sizes):
        names.append(name)
        held += sizes[name]
        if held >= BATCH:
            yield names
            names, held = [], 0
    if names:
        yield names


def _read_batch(settings: AozoraConfig, batch: tuple[str, list[tuple[str, bytes]]]) -> bytes:
    """Return the part for a batch of files: a line with its report and index, then a line for each work."""
    report, index, lines = CorpusReport(examples=settings.examples), [], []
    for file, content in batch[1]:
        if work := _read_file(file, content, settings, report):
            document, names = work
            long = [line for line in document["text"].split("\n") if len(line) >= settings.line_chars]
            lines.append(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
            index.append([file, names, characters(document["text"]), len(lines[-1]), list(map(text_hash, long))])
    head = {"report": report.to_dict(), "index": index}
    return b"".join([orjson.dumps(head, option=orjson.OPT_APPEND_NEWLINE), *lines])


def _read_file(
    file: str, content: bytes, settings: AozoraConfig, report: CorpusReport
) -> tuple[dict[str, str], list[str]] | None:
    """Return the document of a file and the names of its persons, the author first.

    None if the work is left out, which the report counts.
    """
    counts: Counter[str] = Counter()
    if (decoded := decode(content, counts)) is None:
        report.enter("")
        report.remove("unreadable", file, "")
        return None
    report.enter(decoded)
    work = read_work(decoded, counts)
    orthography = "new" if is_new(work.text) else "old"
    if len(work.text) < settings.min_chars:
        reason = "too_short"
    elif not (work.is_public_domain or settings.copyrighted):
        reason = "copyrighted"
    elif not is_japanese(work.text):
        reason = "not_japanese"
    elif settings.orthography not in (orthography, "all"):
        reason = f"{orthography}_orthography"
    else:
        for name in counts:
            report.count(name, counts[name])
        document = {"text": work.text, "title": work.title, "subtitle": work.subtitle, "author": work.author}
        document |= {"translator": work.translator, "orthography": orthography, "file": file}
        return document, [work.author or work.byline or file, work.byline, work.translator]
    report.remove(reason, file, work.text, work.title)
    return None


def _read_index(part: Path, report: CorpusReport) -> Iterator[Entry]:
    """Yield what the first line of a part says of its works, and add its report to that of the run."""
    with open(part, "rb") as file:
        head = orjson.loads(file.readline())
        start = file.tell()
    report.merge(from_dict(head["report"]))
    for name, names, length, size, hashes in head["index"]:
        yield Entry(name, names, length, part.name, start, start + size, np.array(hashes, dtype=np.uint64))
        start += size


def _text(parts: Path, entry: Entry) -> dict[str, str]:
    """Return the document of a work."""
    with open(parts / entry.part, "rb") as file:
        file.seek(entry.start)
        document: dict[str, str] = orjson.loads(file.read(entry.end - entry.start))
    return document


def _without_copies(entries: list[Entry], parts: Path, settings: AozoraConfig, report: CorpusReport) -> list[Entry]:
    """Return the works of which no larger share of long lines than max_repeated stands in longer works.

    Collections hold single works, and a work may be in several files: with and without ruby, from several editions.
    """
    ordered = sorted(entries, key=lambda entry: (-entry.characters, entry.file))
    hashes = [entry.hashes for entry in ordered]
    # Numbers of the different lines, [all long lines].
    _, numbers = np.unique(np.concatenate([np.empty(0, np.uint64), *hashes]), return_inverse=True)
    seen = np.zeros(len(numbers), dtype=bool)
    kept, start = [], 0
    for entry in ordered:
        lines = numbers[start : start + len(entry.hashes)]
        start += len(lines)
        share = seen[lines].mean() if len(lines) else 0.0
        if share > settings.max_repeated:
            document = _text(parts, entry)
            report.remove("copy", entry.file, document["text"], f"{share:.4g} {document['title']}")
        else:
            seen[lines] = True
            kept.append(entry)
    return kept


def held_out(settings: AozoraConfig) -> Callable[[Entry], bool]:
    """Return the function that says whether a work is held out: by the list of the settings, or by a hash."""
    if settings.held_out is None:
        return lambda entry: _hash(entry.names[0]) < settings.held_out_share * 2**64
    listed = read_record(settings.held_out, {}, {"authors": list, "files": list})
    names, files = (set(map(str, listed.get(key) or ())) - {""} for key in ("authors", "files"))
    return lambda entry: entry.file in files or not names.isdisjoint(entry.names)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _write(
    kept: list[Entry],
    parts: Path,
    folder: Path,
    is_held_out: Callable[[Entry], bool],
    settings: AozoraConfig,
    report: CorpusReport,
) -> None:
    """Write the works, or their pieces, in an order by a hash of the file, and count them."""
    with (
        open(folder / TRAIN, "wb") as train,
        open(folder / HELD_OUT, "wb") as other,
        progress(len(kept), "doc", tr("writing {name}", name=folder.name)) as bar,
    ):
        for entry in sorted(kept, key=lambda entry: _hash(entry.file)):
            document, is_other = _text(parts, entry), is_held_out(entry)
            report.keep(document["text"])
            report.count(HELD_OUT_WORKS, is_other)
            report.count(HELD_OUT_CHARACTERS, is_other * entry.characters)
            cut = pieces(document["text"], settings.piece_characters)
            report.count(PIECES, len(cut) if settings.piece_characters else 0)
            (other if is_other else train).writelines(
                orjson.dumps(document | {"text": piece}, option=orjson.OPT_APPEND_NEWLINE) for piece in cut
            )
            bar.update(1)


def pieces(text: str, size: int | None) -> list[str]:
    """Return a text cut at line ends into pieces of at least `size` characters; None: whole.

    A last piece shorter than SHORTEST_PIECE is part of the one before.
    """
    if size is None:
        return [text]
    cut: list[str] = []
    lines: list[str] = []
    held = 0
    for line in text.split("\n"):
        lines.append(line)
        held += len(line) + 1
        if held >= size:
            cut.append("\n".join(lines))
            lines, held = [], 0
    if lines:
        last = "\n".join(lines)
        if cut and len(last) < SHORTEST_PIECE:
            cut[-1] += "\n" + last
        else:
            cut.append(last)
    return cut


def limits(settings: AozoraConfig) -> dict[str, str]:
    """Return the possible reasons for leaving out a work, each with its threshold as text, for the report."""
    found = {"unreadable": tr_noop("no Shift_JIS"), "too_short": f"< {settings.min_chars}"}
    if not settings.copyrighted:
        found["copyrighted"] = tr_noop("by its colophon")
    found["not_japanese"] = tr_noop("> 50 % of the letters")
    if settings.orthography != "all":
        found["old_orthography" if settings.orthography == "new" else "new_orthography"] = ""
    return found | {"copy": f"> {settings.max_repeated}"}
