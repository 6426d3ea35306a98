"""A pseudo-translation: every message with accents on its letters, so that a text that is still English is seen.

Each English word has a letter that gets an accent. The accented letters are those of Latin-1, which the course's font
for figures has.
"""

import base64
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from babel.messages.pofile import write_po
from course_lib.language import catalogs

# A language that Babel knows and that the course will hardly be written in.
LANGUAGE = "eo"
ACCENTS = str.maketrans("aceinouyACEINOUY", "áçéíñóúýÁÇÉÍÑÓÚÝ")
FIELD = r"\{[^{}]*\}"
# What a translator leaves as it is in Markdown: code, comments, link targets, HTML tags, addresses, formulas.
KEPT = r"```.*?```|(?m:^ {4}.*$)|<!--.*?-->|`[^`\n]*`|\]\([^)\s]*\)|<[^<>\n]+>|https?://[^\s)>]+|\$[^$\n]+\$|&\w+;"
SVG = "{http://www.w3.org/2000/svg}"


def accented(text: str, kept: str) -> str:
    parts = re.split(f"({kept})", text, flags=re.S)
    return "".join(part if number % 2 else part.translate(ACCENTS) for number, part in enumerate(parts))


def translation(message: str, domain: str) -> str:
    if domain != catalogs.COURSE:
        return accented(message, KEPT)
    # Spaces at the ends and line breaks are part of a layout.
    inner = message.strip()
    return message.replace(inner, f"«{accented(inner, FIELD)}»", 1)


def write_catalogues(folder: Path) -> None:
    """The catalogues of the pseudo-language in a folder, by the same steps as a translator's: update, fill in, update."""
    catalogs.update(LANGUAGE, folder)
    for domain in catalogs.DOMAINS:
        catalog = catalogs.read(LANGUAGE, domain, folder)
        for message in catalog:
            if message.id:
                message.string = translation(str(message.id), domain)
        with catalogs.po_file(LANGUAGE, domain, folder).open("wb") as file:
            write_po(file, catalog, width=0, include_lineno=False)
    catalogs.update(LANGUAGE, folder)


def english(text: str) -> list[str]:
    """The words of a text in which no letter has an accent, without numbers, file names and names with signs in them."""
    return [
        word
        for word in re.findall(r"(?<![\w./=-])[A-Za-z]{3,}(?![\w/=]|\.\w|-\w)", text)
        if re.search("[aceinouy]", word)
    ]


def prose(markdown: str) -> str:
    """A Markdown text without the parts that a translation keeps."""
    return re.sub(KEPT, " ", markdown, flags=re.S)


def svg_texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    return ["".join(element.itertext()) for kind in ("text", "title", "desc") for element in root.iter(f"{SVG}{kind}")]


class _Html(HTMLParser):
    """The texts and alternative texts of an HTML output, and the texts of the drawings in it."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.code = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.code += tag == "pre"
        self.texts.append(given.get("alt") or "")
        source = given.get("src") or ""
        if source.startswith("data:image/svg+xml;base64,"):
            self.texts += svg_texts(base64.b64decode(source.split(",", 1)[1]).decode())

    def handle_endtag(self, tag: str) -> None:
        self.code -= tag == "pre"

    def handle_data(self, data: str) -> None:
        # The code of a solution stays as it is.
        if not self.code:
            self.texts.append(data)


def shown(cell: Any) -> Iterator[str]:
    """The texts that a reader sees in the outputs of a code cell: printed, in HTML, in Markdown, in figures."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output.text
        data = output.get("data", {})
        if "text/html" in data:
            html = _Html()
            html.feed(data["text/html"])
            yield from html.texts
        elif "image/svg+xml" in data:
            yield from svg_texts(data["image/svg+xml"])
        elif "text/markdown" in data:
            yield data["text/markdown"]
        elif "text/plain" in data:
            yield data["text/plain"]


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
