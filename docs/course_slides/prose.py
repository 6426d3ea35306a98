"""What of a notebook's prose stands on a slide: headings, lists and tables, and the first sentences of paragraphs."""

import re
from dataclasses import dataclass, replace
from typing import Literal

from wcwidth import wcswidth

# Points inside these belong to no sentence: code, links, parentheses, quotations, bold words.
WHOLE = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|\([^()]*\)|\*\*[^*]+\*\*|「[^「」]*」|『[^『』]*』|（[^（）]*）")
# The end of a sentence: English, Japanese inside English, and Japanese, where no space follows; x is a span of WHOLE.
END = re.compile(
    r"[.!?][*\"”)]*\s+(?=[A-Z`*\[(“\d]|[^\x00-\x7f])|[。！？]\s+(?=[A-Z`*\[(“\d])|[。！？]\s*(?=\w)(?![a-wyz])"
)
ABBREVIATIONS = ("e.g.", "i.e.", "al.", "cf.", "vs.", "No.", "Fig.", "approx.")
# Links to the glossary: on a slide, only the word.
GLOSSARY = re.compile(r"\[([^\]]+)\]\([^)]*glossary\.md[^)]*\)")
# Longer lists are shortened to the first sentence of each item.
LONG_LIST = 560

Kind = Literal["heading", "list", "table", "code", "paragraph"]


@dataclass(frozen=True)
class Block:
    """A block of Markdown. `text` is its source; in a paragraph, the lines are joined."""

    kind: Kind
    text: str
    # whether its last sentence introduces what comes next
    introduces: bool = False


def blocks(source: str) -> list[Block]:
    """Return the blocks of a Markdown cell in order, without its links to the glossary.

    Blank lines separate blocks; a heading is a block of its own.
    """
    found: list[Block] = []

    def add(kind: Kind, text: str) -> None:
        found.append(Block(kind, text, kind == "paragraph" and text.endswith(":")))

    for part in re.split(r"\n\s*\n(?! )", GLOSSARY.sub(r"\1", source.strip())):
        *headings, rest = _headings(part)
        for line in headings:
            add("heading", line)
        kind = _kind(rest)
        if kind == "paragraph" and (list_begins := re.search(r"\n(?=([*-]|\d+\.) )", rest)):
            paragraph, items = rest[: list_begins.start()], rest[list_begins.end() :]
            add("paragraph", _joined(paragraph))
            add("list", items)
        elif rest:
            add(kind, _joined(rest) if kind == "paragraph" else rest)
    return found


def translated_blocks(source: str, english: str) -> list[Block]:
    """Return the blocks of a translated cell. They introduce what the English ones do, which end with a colon."""
    found, originals = blocks(source), blocks(english)
    if [block.kind for block in found] != [block.kind for block in originals]:
        return found
    pairs = zip(found, originals, strict=True)
    return [replace(block, introduces=original.introduces) for block, original in pairs]


def sentences(paragraph: str) -> list[str]:
    """Split a paragraph into sentences. Code, links, parentheses, quotations and bold words are never split."""
    return [sentence.strip() for sentence in _spaced(paragraph)]


def leading(paragraph: str, limit: int, introduces: bool = False) -> tuple[str, str]:
    """Return what of a paragraph stands on a slide, and the sentence that introduces the next cell, if any.

    A paragraph's first sentence stands on the slide, and those after it as long as all take at most `limit` columns.
    `introduces` says whether the last sentence introduces the next cell.
    """
    found = _spaced(paragraph)
    introduction = found.pop() if introduces else ""
    shown = "".join(found[:1])
    for sentence in found[1:]:
        if columns(shown + sentence.rstrip()) > limit:
            break
        shown += sentence
    return shown.strip(), introduction.strip()


def columns(text: str) -> int:
    """Return the columns that a text takes in one line; a Japanese character takes two."""
    return max(0, wcswidth(text.replace("\n", " ")))


def _spaced(paragraph: str) -> list[str]:
    """Split a paragraph into sentences, with the spaces between them."""
    masked = WHOLE.sub(lambda found: "x" * len(found[0]), paragraph)
    cuts = [match.end() for match in END.finditer(masked)]
    cuts = [cut for cut in cuts if not masked[:cut].rstrip().endswith(ABBREVIATIONS)]
    pieces = [paragraph[start:end] for start, end in zip([0, *cuts], [*cuts, len(paragraph)], strict=True)]
    return [piece for piece in pieces if piece.strip()]


def short_list(source: str) -> str:
    """Return a list whole if it has at most LONG_LIST columns; otherwise, the first sentence of each item."""
    if columns(source) <= LONG_LIST:
        return source
    items = re.split(r"\n(?=(?:[*-]|\d+\.) )", source)
    shortened = []
    for item in items:
        if bullet := re.match(r"(?:[*-]|\d+\.) ", item):
            first, *_ = sentences(_joined(item[bullet.end() :]))
            item = f"{bullet[0]}{first}"
        shortened.append(item)
    return "\n".join(shortened)


def _headings(part: str) -> list[str]:
    """Return the heading lines at the beginning of a part, and what follows them as the last element."""
    lines = part.split("\n")
    number = next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return [*lines[:number], "\n".join(lines[number:])]


def _kind(source: str) -> Kind:
    if source.startswith("|"):
        return "table"
    if source.startswith(("```", "    ")):
        return "code"
    return "list" if re.match(r"([*-]|\d+\.) ", source) else "paragraph"


def _joined(paragraph: str) -> str:
    return " ".join(line.strip() for line in paragraph.splitlines())
