"""Inputs of a distributed run: getting a file, and cutting it into shards that tasks can work on independently.

A shard of a dump is a .xml.bz2 file of whole pages. A shard of web text (.docs) holds documents as stored in the input,
in batches: a line of JSON with their sizes, then their bytes.
"""

import bz2
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
import orjson

from course_lib.corpus.config import DownloadConfig, WebtextConfig
from course_lib.corpus.download import download, download_address
from course_lib.corpus.dump import PAGE_END, STREAM, read_pieces
from course_lib.corpus.webfile import WebBatch, read_web
from course_lib.errors import CourseError, UsageError
from course_lib.files import CHUNK, temporary_folder
from course_lib.parallel import until_error
from course_lib.scale.store import Store


@contextmanager
def fetched(source: str, store: Store, settings: DownloadConfig) -> Iterator[Path]:
    """Yield a local path for an input: a corpus's name, an address, or a path. Later runs resume downloads."""
    downloads = Path(store.url("downloads")) if store.local else Path(tempfile.gettempdir(), "course-scale-downloads")
    name, _, date = source.partition(":")
    if name == "cc100" and not date:
        yield download("cc100", downloads, settings=settings)
    elif name == "jawiki" and "/" not in date:
        yield download("jawiki", downloads, date or "latest", settings)
    elif source.startswith(("http://", "https://")):
        yield download_address(source, downloads, settings)
    elif "://" in source:
        with temporary_folder("course-scale-source") as folder:
            files, path = fsspec.core.url_to_fs(source)
            target = folder / Path(path).name
            files.get_file(path, str(target))
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
    """Yield a dump as .bz2 files of about `size` compressed bytes, each with whole pages.

    Streams of a multistream dump are copied as they are. Other dumps are compressed again, at about 15 MB/s.
    """
    shard, left, total = bytearray(), b"", path.stat().st_size
    # A shard is held back until the next one has a page, because the last bytes of a file may have none.
    ready = b""
    for piece in read_pieces(path):
        if piece.compressed:
            shard += (bz2.compress(left, 1) if left else b"") + piece.content
            left = b""
            more = total - piece.offset - piece.read > CHUNK // 4
            blocks = [(b"", more and _ends_with_page(piece.content))]
        else:
            blocks = list(_pages(left + piece.content, size))
            left, _ = blocks.pop()
        for block, whole in blocks:
            shard += bz2.compress(block, 1) if block else b""
            if whole and len(shard) >= size:
                if ready:
                    yield ready
                ready = bytes(shard)
                shard.clear()
    if shard and ready:
        yield ready
        ready = b""
    yield ready + shard + (bz2.compress(left, 1) if left else b"")


def _pages(content: bytes, size: int) -> Iterator[tuple[bytes, bool]]:
    """Cut XML after pages, into blocks of at least `size` bytes; the last block may not end with a page."""
    start = 0
    while (end := content.find(PAGE_END, start + size)) >= 0:
        end += len(PAGE_END)
        yield content[start:end], True
        start = end
    yield content[start:], False


def _ends_with_page(streams: bytes) -> bool:
    """Return whether the last of some bz2 streams ends with a page."""
    start = max((match.start() for match in STREAM.finditer(streams)), default=0)
    try:
        return bz2.decompress(streams[start:]).rstrip().endswith(PAGE_END)
    except (OSError, ValueError):
        return False


def text_shards(path: Path, size: int, settings: WebtextConfig) -> Iterator[tuple[bytes, int]]:
    """Yield web text as shards of about `size` bytes, with the number of documents in each."""
    shard, errors = bytearray(), list[CourseError]()
    count = total = 0
    batches = read_web(path, settings.max_line_bytes, settings.max_document_bytes, size=min(size, CHUNK))
    for batch in until_error(batches, errors):
        head = {"long_lines": batch.long_lines, "cut": batch.cut, "sizes": list(map(len, batch.documents))}
        shard += orjson.dumps(head) + b"\n" + b"".join(batch.documents)
        count, total = count + len(batch.documents), total + len(batch.documents)
        if len(shard) >= size:
            yield bytes(shard), count
            shard, count = bytearray(), 0
    if shard:
        yield bytes(shard), count
    if errors:
        raise errors[0]
    if not total:
        raise CourseError(f"{path}: no document in it, only white space")


def read_documents(path: Path, first: int) -> Iterator[WebBatch]:
    """Yield the batches in a shard of web text, of which `first` is the running number of the first document."""
    with open(path, "rb") as file:
        while line := file.readline():
            try:
                head = orjson.loads(line)
                documents = [file.read(size) for size in head["sizes"]]
            except (orjson.JSONDecodeError, TypeError, KeyError):
                raise CourseError(f"{path}: broken shard near byte {file.tell()}") from None
            if sum(map(len, documents)) != sum(head["sizes"]):
                raise CourseError(f"{path}: truncated shard: it ends at byte {file.tell()}")
            yield WebBatch(first, documents, 0, head["long_lines"], head["cut"])
            first += len(documents)
