"""Inputs of a distributed run: getting a file, and cutting it into shards that tasks can work on independently.

A shard of a dump is a .xml.bz2 file of whole pages. A shard of web text (.docs) holds documents as stored in the input,
in batches: a line of JSON with their sizes, then their bytes.
"""

import bz2
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
import orjson

from course_lib.corpus.config import DownloadConfig, WebtextConfig
from course_lib.corpus.download import download, download_address
from course_lib.corpus.dump import PAGE, PAGE_END, STREAM, newest_revision, read_head, read_pieces
from course_lib.corpus.webfile import WebBatch, read_web
from course_lib.corpus.wikipedia import LONGEST_PAGE, no_page
from course_lib.errors import CourseError, UsageError, one_line
from course_lib.files import CHUNK, temporary_folder, user_folder
from course_lib.scale.store import Store


@contextmanager
def fetched(source: str, store: Store, settings: DownloadConfig) -> Iterator[Path]:
    """Yield a local path for an input: a corpus's name, an address, or a path. Later runs resume downloads."""
    downloads = Path(store.url("downloads")) if store.local else user_folder("course-scale-downloads")
    name, _, date = source.partition(":")
    if name in ("cc100", "jawiki"):
        yield download("cc100" if name == "cc100" else "jawiki", downloads, date or "latest", settings)
    elif source.startswith(("http://", "https://")):
        yield download_address(source, downloads, settings)
    elif "://" in source:
        with temporary_folder("course-scale-source") as folder:
            # Each file system has errors of its own.
            try:
                files, path = fsspec.core.url_to_fs(source)
                target = folder / Path(path).name
                files.get_file(path, str(target))
            except Exception as error:
                raise CourseError(f"{source}: cannot be read: {one_line(error) or type(error).__name__}") from error
            yield target
    else:
        yield Path(source)


def check_source(source: str, kind: str) -> None:
    """Raise UsageError if a setting cannot name an input of this kind."""
    name = source.partition(":")[0]
    wrong = {"wikipedia": "cc100", "webtext": "jawiki"}[kind]
    if name == wrong:
        raise UsageError(f"{kind}: {source!r} is not allowed: {wrong} belongs under the other key")
    if "://" not in source and name not in ("jawiki", "cc100") and not Path(source).is_absolute():
        raise UsageError(f"{kind}: {source!r} is not allowed: a path has to be absolute, because tasks run elsewhere")


def dump_shards(path: Path, size: int) -> Iterator[bytes]:
    """Yield a dump as .bz2 files of about `size` compressed bytes, each with whole pages and at least one.

    Streams of a multistream dump are copied as they are. Other dumps are compressed again, at about 15 MB/s. If the
    pages have no <ns>, each shard begins with the dump's list of namespaces.
    """
    before, first_page = read_head(path)
    start = b"" if b"<ns" in first_page else bz2.compress(before)
    shard, xml, total = bytearray(), b"", path.stat().st_size
    for piece in read_pieces(path):
        if piece.compressed:
            shard += piece.content
            # The last stream of a dump has no page: what follows must be more than that.
            more = total - piece.offset - piece.read > CHUNK // 4
            if len(shard) >= size and more and _ends_with_page(piece.content):
                yield bytes(shard)
                shard[:] = start
            continue
        xml += piece.content
        while (page := xml.find(PAGE, size)) >= 0:
            if len(shard) >= size:
                yield bytes(shard)
                shard[:] = start
            shard += bz2.compress(xml[:page], 1)
            xml = xml[page:]
        if len(xml) > 2 * size:
            last = max(xml.rfind(PAGE), 0)
            xml = xml[:last] + newest_revision(xml[last:])
        if len(xml) > size + LONGEST_PAGE:
            raise no_page(path, len(xml))
    yield bytes(shard) + (bz2.compress(xml, 1) if xml else b"")


def _ends_with_page(streams: bytes) -> bool:
    """Return whether the last of some bz2 streams ends with a page."""
    start = max((match.start() for match in STREAM.finditer(streams)), default=0)
    try:
        return bz2.decompress(streams[start:]).rstrip().endswith(PAGE_END)
    except (OSError, ValueError):
        return False


def text_shards(path: Path, size: int, settings: WebtextConfig) -> Iterator[tuple[bytes, int]]:
    """Yield web text as shards of about `size` bytes, with the number of documents in each."""
    shard, count, empty = bytearray(), 0, True
    for batch in read_web(path, settings.max_line_bytes, settings.max_document_bytes, size=min(size, CHUNK)):
        head = {"long_lines": batch.too_long, "cut": batch.cut, "sizes": list(map(len, batch.documents))}
        shard += orjson.dumps(head) + b"\n" + b"".join(batch.documents)
        count, empty = count + len(batch.documents), False
        if len(shard) >= size:
            yield bytes(shard), count
            shard, count = bytearray(), 0
    if shard:
        yield bytes(shard), count
    if empty:
        raise CourseError(f"{path}: no document in it, only white space")


def read_documents(path: Path, first: int) -> Iterator[WebBatch]:
    """Yield the batches in a shard of web text, of which `first` is the running number of the first document."""
    with open(path, "rb") as file:
        while line := file.readline():
            head = orjson.loads(line)
            documents = [file.read(size) for size in head["sizes"]]
            yield WebBatch(first, documents, 0, head["long_lines"], head["cut"])
            first += len(documents)
