"""Extraction of Wikipedia articles from a dump as JSON Lines: {"id", "title", "text"}.

Workers decompress, parse and extract pieces of the dump. This process joins pages that were cut between two pieces.
Only articles are kept: no redirects, other namespaces or disambiguation pages. Of a page with several revisions, the
newest is used.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from lxml import etree

from course_lib.corpus.config import WikipediaConfig
from course_lib.corpus.dump import (
    PAGE,
    WHOLE_PAGE,
    Piece,
    decompress,
    newest_revision,
    newest_revisions,
    read_head,
    read_pieces,
    split_pages,
)
from course_lib.corpus.report import REPLACED, CorpusReport
from course_lib.corpus.wikitext import to_text
from course_lib.documents import path_list
from course_lib.errors import CourseError
from course_lib.files import atomic_write, require_file, require_other
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.progress import progress
from course_lib.parallel import ordered_map

# Bytes; a file with more bytes than this before the end of a page is not a dump.
LONGEST_PAGE = 64 << 20
# Characters; MediaWiki does not save pages with more bytes than this ($wgMaxArticleSize), so a longer page is damaged
# or forged.
LONGEST_TEXT = 2 << 20
REDIRECT = re.compile(r"\s*#(?:redirect|転送|リダイレクト)", re.I)
TITLE = re.compile(rb"<title>(.*?)</title>", re.S)
NAMESPACES = re.compile(rb"<namespaces>.*?</namespaces>", re.S)
# Characters that XML 1.0 forbids, also as references (https://www.w3.org/TR/xml/#charsets).
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REFERENCE = re.compile(r"&#(?:0*([0-9]+)|x0*([0-9a-fA-F]+));")
NO_CHARACTER = 0xFFFF
LIMITS = {"other_namespace": tr_noop("ns is not 0"), "redirect": "", "too_long": f"> {LONGEST_TEXT}"}
LIMITS |= {"disambiguation": tr_noop("by its template")}


@dataclass
class _Extracted:
    """A worker's result for a piece: its articles, and the incomplete pages at both ends."""

    head: bytes  # before the first <page>
    articles: bytes  # JSON Lines
    tail: bytes  # after the last </page>
    begins: bool  # whether a <page> begins in this piece
    report: CorpusReport
    read: int  # bytes of the file that the piece covers


def extract(
    sources: Path | Sequence[Path], target: Path, settings: WikipediaConfig | None = None, workers: int = 1
) -> CorpusReport:
    """Extract the articles in dumps (.xml, .xml.gz, .xml.bz2 or .xml.xz) to `target` and return the report.

    Memory use is constant. Raises CourseError with the position of the damage if a dump is truncated or broken.
    """
    settings, sources = settings or WikipediaConfig(), path_list(sources)
    names = ", ".join(source.name for source in sources)
    report = CorpusReport("wikipedia", names, limits=LIMITS | {"too_short": f"< {settings.min_chars}"})
    size = sum(require_file(source).stat().st_size for source in sources)
    for source in sources:
        require_other(source, target)
    with (
        atomic_write(target) as out,
        progress(size, "B", tr("extracting {name}", name=names)) as bar,
    ):
        for source in sources:
            before = report.documents_in
            for extracted in _extract_pieces(source, settings, workers):
                out.write(extracted.articles)
                report.merge(extracted.report)
                bar.update(extracted.read)
            if report.documents_in == before:
                raise CourseError(f"{source}: no <page> found: not a MediaWiki export")
    return report


def _extract_pieces(source: Path, settings: WikipediaConfig, workers: int) -> Iterator[_Extracted]:
    """Yield what was extracted from each piece of a dump and, before it, the page that was cut in front of it."""
    extract_piece = partial(_extract_piece, source, settings)
    # The beginning of a page whose end is in a later piece.
    carry = b""
    for extracted in ordered_map(extract_piece, read_pieces(source), workers):
        joined = extract_piece(Piece(carry + extracted.head, compressed=False, offset=0, read=0))
        carry = joined.head + joined.tail
        yield joined
        if extracted.begins:
            _require_whole(source, carry)
        yield extracted
        carry = extracted.tail if extracted.begins else carry
        if len(carry) > LONGEST_PAGE:
            raise no_page(source, len(carry))
    _require_whole(source, carry)


def no_page(source: Path, size: int) -> CourseError:
    """Return the error for a file with so many bytes that belong to no whole page."""
    return CourseError(f"{source}: {size} bytes without a whole <page>: not a MediaWiki export")


def _require_whole(source: Path, carry: bytes) -> None:
    """Raise CourseError if `carry` has the beginning of a page without its end."""
    if PAGE in carry:
        raise CourseError(f"{source}: broken or truncated: the page {_title(carry)!r} has no </page>")


def _title(page: bytes) -> str:
    title = TITLE.search(page)
    return title[1].decode(errors="replace") if title else ""


def _extract_piece(source: Path, settings: WikipediaConfig, piece: Piece) -> _Extracted:
    """Extract the articles of the whole pages in a piece, in a worker."""
    block, report = decompress(piece, source), CorpusReport()
    head, pages, tail = split_pages(block)
    pages = newest_revisions(pages)
    # Formats before 0.6 have no <ns> (https://www.mediawiki.org/wiki/Help:Export).
    namespaces = _namespaces(source) if pages.count(b"<ns") < pages.count(PAGE) else frozenset[str]()
    articles = b"".join(_article(page, settings, namespaces, report) for page in _parse(source, pages, report))
    return _Extracted(head, articles, newest_revision(tail), PAGE in block, report, piece.read)


def _namespaces(source: Path) -> frozenset[str]:
    """Return the names of the namespaces of a dump other than 0, in lowercase. Raises CourseError if it has no list."""
    listed = NAMESPACES.search(read_head(source)[0])
    if not listed:
        raise CourseError(f"{source}: pages without <ns>, and no <namespaces> before them; allowed: dumps with either")
    try:
        names = etree.fromstring(listed[0], _parser())
    except etree.XMLSyntaxError as error:
        raise CourseError(f"{source}: broken XML in <namespaces>: {error.msg}") from None
    return frozenset((name.text or "").casefold() for name in names if name.get("key") != "0")


def _parse(source: Path, pages: bytes, report: CorpusReport) -> Iterator[Any]:
    """Yield the parsed XML elements of whole pages. Raises CourseError if the XML is broken."""
    if not pages:
        return
    try:
        yield from etree.fromstring(b"<pages>" + pages + b"</pages>", _parser())
    except etree.XMLSyntaxError:
        for page in WHOLE_PAGE.findall(pages):
            yield _parse_page(source, page, report)


def _parse_page(source: Path, page: bytes, report: CorpusReport) -> Any:
    """Parse a page without the characters that XML forbids. Raises CourseError, with its title, if it is broken."""
    page, replaced = _without_forbidden(page)
    report.count(REPLACED, replaced)
    try:
        return etree.fromstring(page, _parser())
    except etree.XMLSyntaxError as error:
        raise CourseError(f"{source}: broken XML in the page {_title(page)!r}: {error.msg}") from None


def _without_forbidden(page: bytes) -> tuple[bytes, int]:
    """Replace each character that XML forbids by U+FFFD, and return their number, too.

    Two surrogates that form a pair are the character that they stand for.
    """
    try:
        text = page.decode("utf8", "surrogatepass")
    except UnicodeDecodeError:
        return page, 0
    text = REFERENCE.sub(_resolved_if_forbidden, text)
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    text, replaced = FORBIDDEN.subn("\ufffd", text)
    return text.encode(), replaced


def _resolved_if_forbidden(reference: re.Match[str]) -> str:
    digits, base = (reference[1], 10) if reference[1] else (reference[2], 16)
    number = int(digits, base) if len(digits) < 8 else NO_CHARACTER
    character = chr(number if number <= 0x10FFFF else NO_CHARACTER)
    return character if FORBIDDEN.match(character) else reference[0]


def _parser() -> Any:
    return etree.XMLParser(huge_tree=True, resolve_entities=False, no_network=True)


def _article(page: Any, settings: WikipediaConfig, namespaces: frozenset[str], report: CorpusReport) -> bytes:
    """Return one page as a JSON line; b"" if it is no article. The report counts it in either case."""
    title, text = page.findtext("title") or "", page.findtext("revision/text") or ""
    identifier = page.findtext("id") or ""
    report.enter(text)
    if reason := _not_an_article(page, title, text, settings, namespaces):
        report.remove(reason, identifier, text, title)
        return b""
    markup: Counter[str] = Counter()
    plain = to_text(text, title, frozenset(settings.drop_sections), markup)
    if len(plain) < settings.min_chars:
        report.remove("too_short", identifier, text, title)
        return b""
    report.keep(plain)
    for kind, removed in markup.items():
        report.count(f"characters of {kind}", removed)
    return orjson.dumps({"id": identifier, "title": title, "text": plain}) + b"\n"


def _not_an_article(page: Any, title: str, text: str, settings: WikipediaConfig, namespaces: frozenset[str]) -> str:
    """Return the reason why a page is no article; "" if it is one."""
    namespace = page.findtext("ns")
    if namespace is None:
        prefix, colon, _ = title.partition(":")
        namespace = "0" if not colon or prefix.casefold() not in namespaces else ""
    if namespace != "0":
        return "other_namespace"
    if page.find("redirect") is not None or REDIRECT.match(text):
        return "redirect"
    if len(text) > LONGEST_TEXT:
        return "too_long"
    names = "|".join(map(re.escape, settings.disambiguation))
    template = names and re.search(rf"\{{\{{\s*(?:{names})\s*[|}}]", text, re.I)
    return "disambiguation" if template else ""
