"""Writes MediaWiki exports: for the tests, and to rebuild data/jawiki-sample.xml.bz2 after an edit of its XML.

bunzip2 -k data/jawiki-sample.xml.bz2 && $EDITOR data/jawiki-sample.xml
python -m tests.corpus.dumps data/jawiki-sample.xml data/jawiki-sample.xml.bz2
"""

import bz2
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

NAMESPACES = {
    -2: "メディア", -1: "特別", 0: "", 1: "ノート", 2: "利用者", 3: "利用者‐会話", 4: "Wikipedia", 5: "Wikipedia‐ノート", 6: "ファイル",
    8: "MediaWiki", 10: "Template", 11: "Template‐ノート", 12: "Help", 14: "Category", 100: "Portal", 828: "モジュール",
}  # fmt: skip
HEADER = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="ja">\n'
    "  <siteinfo>\n    <sitename>見本百科</sitename>\n    <dbname>jawiki</dbname>\n    <case>first-letter</case>\n    <namespaces>\n"
    + "".join(f'      <namespace key="{k}" case="first-letter">{v}</namespace>\n' for k, v in NAMESPACES.items())
    + "    </namespaces>\n  </siteinfo>\n"
)
FOOTER = "</mediawiki>\n"


def page(identifier: int, title: str, text: str) -> str:
    """One <page> of an export; the namespace follows from the title, the redirect element from the text."""
    prefix = title.split(":")[0] if ":" in title else ""
    namespace = next((key for key, name in NAMESPACES.items() if name and name == prefix), 0)
    target = re.match(r"#(?:redirect|転送)\s*\[\[([^\]#|]+)", text, re.I)
    redirect = f'    <redirect title="{escape(target[1])}" />\n' if target else ""
    return (
        f"  <page>\n    <title>{escape(title)}</title>\n    <ns>{namespace}</ns>\n    <id>{identifier}</id>\n{redirect}"
        f"    <revision>\n      <id>{identifier + 90000}</id>\n      <timestamp>2024-11-01T00:00:00Z</timestamp>\n"
        "      <contributor>\n        <username>見本太郎</username>\n        <id>1</id>\n      </contributor>\n"
        "      <model>wikitext</model>\n      <format>text/x-wiki</format>\n"
        f'      <text bytes="{len(text.encode())}" xml:space="preserve">{escape(text)}</text>\n    </revision>\n  </page>\n'
    )


def multistream(xml: str, pages_per_stream: int = 100) -> bytes:
    """An export as the encyclopaedia publishes it: a stream for the header, one per so many pages, one for the end."""
    start, end = xml.index("  <page>"), xml.rindex("</page>") + len("</page>\n")
    pages = re.findall(r"  <page>.*?</page>\n", xml[start:end], re.S)
    groups = ["".join(pages[i : i + pages_per_stream]) for i in range(0, len(pages), pages_per_stream)]
    return b"".join(bz2.compress(part.encode()) for part in (xml[:start], *groups, xml[end:]))


def export(articles: Iterable[tuple[str, str]]) -> str:
    """A whole export from (title, wikitext) pairs."""
    return HEADER + "".join(page(i, title, text) for i, (title, text) in enumerate(articles, 1)) + FOOTER


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_bytes(multistream(source.read_text(encoding="utf8")))
