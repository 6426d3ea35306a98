"""The built site, read as HTML: its pages, and what breaks the rules that each page keeps, as sentences."""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from lxml import html

# Bytes; without the files that all pages share.
LARGEST = 1_000_000
# Stands for the site, because urljoin resolves relative addresses only for schemes that it knows.
HERE = "http://site.invalid"
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
# Elements that load what they name, with the attribute that names it.
LOADING = (("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"))


class Page:
    """A page of the site."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.path = folder / name
        self.tree = html.fromstring(self.path.read_bytes())

    @cached_property
    def ids(self) -> list[str]:
        return [element.get("id") for element in self.tree.iter() if isinstance(element.tag, str) and element.get("id")]

    def target(self, address: str) -> tuple[str, str] | None:
        """The name of the file and the id that an address on this page leads to; None for another host."""
        parts = urlsplit(urljoin(f"{HERE}/{self.name}", address))
        inside = f"{parts.scheme}://{parts.netloc}" == HERE
        return (unquote(parts.path.lstrip("/")), unquote(parts.fragment)) if inside else None

    def links(self) -> list[str]:
        return [link.get("href") for link in self.tree.iter("a") if link.get("href")]

    def problems(self) -> Iterator[str]:
        """What breaks the rules for one page."""
        if not self.tree.get("lang") or not self.tree.findtext("head/title", "").strip():
            yield "no language, or no title"
        if double := [name for name, count in Counter(self.ids).items() if count > 1]:
            yield f"ids that are there twice: {double[:5]}"
        yield from self._headings()
        yield from (
            f"an image without a text: {image.get('src', '')[:60]}"
            for image in self.tree.iter("img")
            if not image.get("alt")
        )
        yield from (
            f"no name: {html.tostring(each)[:120]!r}"
            for each in self.tree.iter("a", "button", "input")
            if not _name(each)
        )
        for tag, attribute in LOADING:
            for element in self.tree.iter(tag):
                address = element.get(attribute, "")
                if element.get("rel") not in ("canonical",) and urlsplit(address).scheme not in ("", "data"):
                    yield f"{tag} from another host: {address[:100]}"
        if (size := self.size()) > LARGEST:
            yield f"{size} bytes"

    def _headings(self) -> Iterator[str]:
        levels = [int(heading.tag[1]) for heading in self.tree.iter(*HEADINGS) if not _printed_only(heading)]
        if levels.count(1) != 1 or levels[0] != 1:
            yield f"not one heading of level 1, and at the top: {levels[:10]}"
        yield from (
            f"a heading of level {after} follows one of level {before}"
            for before, after in zip(levels, levels[1:])
            if after > before + 1
        )

    def size(self) -> int:
        """Bytes of the page and of the images that only it shows."""
        images = {
            self.target(image.get("src")) for image in self.tree.iter("img") if "_images/" in image.get("src", "")
        }
        return self.path.stat().st_size + sum((self.folder / image[0]).stat().st_size for image in images if image)


def _name(element: html.HtmlElement) -> str:
    """The words by which a screen reader names a link, button or field."""
    said = [element.get(attribute) or "" for attribute in ("aria-label", "title", "placeholder")]
    said += [element.text_content(), *(image.get("alt") or "" for image in element.iter("img"))]
    hidden = element.tag == "input" and element.get("type") in ("hidden", "checkbox")
    return "hidden" if hidden or (element.tag == "a" and not element.get("href")) else "".join(said).strip()


def _printed_only(element: html.HtmlElement) -> bool:
    """Whether an element is in the theme's second title and list of contents, which only paper shows."""
    return any(above.get("id") == "jb-print-docs-body" for above in element.iterancestors())


def broken_links(pages: dict[str, Page]) -> list[str]:
    """Links to a file that is not there, or to an id that is not on its page."""
    broken = []
    for page in pages.values():
        for link in page.links():
            target = page.target(link)
            if target is None:
                continue
            file, anchor = target
            if not (page.folder / file).is_file():
                broken.append(f"{page.name}: {link}: no such file")
            elif anchor and file in pages and anchor not in pages[file].ids:
                broken.append(f"{page.name}: {link}: no such place")
    return broken
