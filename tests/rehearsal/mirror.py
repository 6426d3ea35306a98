"""The bundled texts as dumps.wikimedia.org and data.statmt.org publish the real ones, for a mirror on the loopback.

Per dump there are one file of all pages, the same pages in numbered parts, an index of each, and lists of checksums. In
the folder latest/ the files have `latest` in their names, while the lists in it use the day of the dump. Sources:
https://dumps.wikimedia.org/jawiki/ and https://meta.wikimedia.org/wiki/Data_dumps/Dump_format.
"""

import bz2
import hashlib
import re

from course_lib.paths import data

from tests.corpus.mirror import Mirror

DAY = "20261101"
# Pages of the sample that are published, and in a stream; the real dump has millions, and 100 in a stream.
PAGES, STREAM = 160, 40
# First and last page id of each part; the real dump has six.
PARTS = ("p1p114794", "p114795p390428")


def publish(mirror: Mirror) -> None:
    """Put a Wikipedia dump and the web text into a mirror."""
    files = dump_files()
    sums = {
        f"jawiki-{DAY}-{kind}sums.txt": "".join(
            f"{hashlib.new(kind, content).hexdigest()}  {name}\n" for name, content in files.items()
        ).encode()
        for kind in ("sha1", "md5")
    }
    for name, content in (files | sums).items():
        mirror.put(f"/jawiki/{DAY}/{name}", content)
        mirror.put(f"/jawiki/latest/{name.replace(DAY, 'latest')}", content)
    mirror.put("/cc-100/ja.txt.xz", data("webtext-sample.txt.xz").read_bytes())


def dump_files() -> dict[str, bytes]:
    """Return the files of a dump by name: all pages, the pages in parts, and the index of each."""
    xml = bz2.decompress(data("jawiki-sample.xml.bz2").read_bytes())
    pages = re.findall(rb" *<page>.*?</page>\n", xml, re.S)[:PAGES]
    head, tail = bz2.compress(xml[: xml.index(b"  <page>")]), bz2.compress(b"</mediawiki>")
    streams = [bz2.compress(b"".join(pages[at : at + STREAM])) for at in range(0, len(pages), STREAM)]
    half = len(streams) // len(PARTS)
    files = _with_index("{}.{}.bz2", [head, *streams, tail])
    for number, (span, part) in enumerate(zip(PARTS, [streams[:half], streams[half:]], strict=True), start=1):
        files |= _with_index(f"{{}}{number}.{{}}-{span}.bz2", [head, *part, tail])
    return files


def _with_index(name: str, streams: list[bytes]) -> dict[str, bytes]:
    """Return the streams as one file, and its index: `offset of the stream:page id:title` for each page."""
    lines, offset = [], 0
    for stream in streams:
        text = bz2.decompress(stream).decode() if offset else ""
        for page in re.findall(r"<page>(.*?)</page>", text, re.S):
            title, number = re.search(r"<title>(.*?)</title>.*?<id>(\d+)</id>", page, re.S).groups()  # type: ignore[union-attr]
            lines.append(f"{offset}:{number}:{title}\n")
        offset += len(stream)
    return {
        f"jawiki-{DAY}-pages-articles-{name.format('multistream', 'xml')}": b"".join(streams),
        f"jawiki-{DAY}-pages-articles-{name.format('multistream-index', 'txt')}": bz2.compress("".join(lines).encode()),
    }
