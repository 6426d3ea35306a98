"""What of a notebook's prose stands on a slide: headings, lists and tables, and the first sentences of paragraphs."""

import re
from dataclasses import dataclass
from typing import Literal

# Points inside these belong to no sentence: code, links, parentheses, bold words.
WHOLE = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|\([^()]*\)|\*\*[^*]+\*\*")
END = re.compile(r"(?:[.!?][*\"”)]*|[。！？])\s+(?=[A-Z`*\[(“\d]|[^\x00-\x7f])")
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


def blocks(source: str) -> list[Block]:
    """Return the blocks of a Markdown cell in order, without its links to the glossary.

    Blank lines separate blocks; a heading is a block of its own.
    """
    found: list[Block] = []
    for part in re.split(r"\n\s*\n(?! )", GLOSSARY.sub(r"\1", source.strip())):
        *headings, rest = _headings(part)
        found += [Block("heading", line) for line in headings]
        kind = _kind(rest)
        if kind == "paragraph" and (list_begins := re.search(r"\n(?=([*-]|\d+\.) )", rest)):
            paragraph, items = rest[: list_begins.start()], rest[list_begins.end() :]
            found += [Block("paragraph", _joined(paragraph)), Block("list", items)]
        elif rest:
            found.append(Block(kind, _joined(rest) if kind == "paragraph" else rest))
    return found


def sentences(paragraph: str) -> list[str]:
    """Split a paragraph into sentences. Code, links, parentheses and bold words are never split."""
    masked = WHOLE.sub(lambda found: "x" * len(found[0]), paragraph)
    cuts = [match.end() for match in END.finditer(masked)]
    cuts = [cut for cut in cuts if not masked[:cut].rstrip().endswith(ABBREVIATIONS)]
    pieces = [paragraph[start:end].strip() for start, end in zip([0, *cuts], [*cuts, len(paragraph)], strict=True)]
    return [piece for piece in pieces if piece]


def leading(paragraph: str, room: int) -> tuple[str, str]:
    """Return what of a paragraph stands on a slide, and the sentence that introduces the next cell, if any.

    A paragraph's first sentence stands on the slide, and those after it as long as all have at most `room` characters.
    The last sentence introduces the next cell if it ends with a colon.
    """
    found = sentences(paragraph)
    introduction = found.pop() if found[-1].endswith(":") else ""
    shown = found[:1]
    for sentence in found[1:]:
        if len(" ".join([*shown, sentence])) > room:
            break
        shown.append(sentence)
    return " ".join(shown), introduction


def short_list(source: str) -> str:
    """Return a list whole if it has at most LONG_LIST characters; otherwise, the first sentence of each item."""
    if len(source) <= LONG_LIST:
        return source
    items = re.split(r"\n(?=(?:[*-]|\d+\.) )", source)
    marks = [re.match(r"(?:[*-]|\d+\.) ", item) for item in items]
    return "\n".join(
        f"{mark[0]}{sentences(_joined(item[mark.end() :]))[0]}" if mark else item
        for item, mark in zip(items, marks, strict=True)
    )


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
