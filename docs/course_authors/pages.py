"""The course's Markdown pages that have editions in other languages: READMEs, pages of docs, instructor's kit.

A page is cut into messages: headings, paragraphs, items of lists, rows of tables and blocks of code. So a change of one
row leaves the translations of the others valid.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from course_lib.paths import REPOSITORY

NAMES = (
    "index", "glossary", "commands", "profiles", "evaluation", "project", "scale", "several-nodes", "benchmarks",
    "model_card", "field", "speedrun",
)  # fmt: skip
PATTERNS = (
    "README.md",
    "data/aozora/README.md",
    *(f"docs/{name}.md" for name in NAMES),
    "docs/instructor/*.md",
)
GLOSSARY = Path("docs/glossary.md")
# A line that opens a message: a heading, an item, or a row. The line below a table's heading belongs to the heading.
_OPENS = re.compile(r"#+ |\s*(?:[*-]|\d+\.) |\|(?![-:| ]+\|\s*$)")
# Blocks that are never divided: front matter, code between fences, and indented code.
_FRONT, _FENCED = r"\A---\n[\s\S]*?\n---$", r"^(?P<fence>`{3,})[\s\S]*?\n(?P=fence)$"
_WHOLE = re.compile(rf"{_FRONT}|{_FENCED}|(?<=\n\n)(?: {{4}}.*\n)(?:(?: {{4}}.*)?\n)*", re.MULTILINE)
_HEADING = re.compile(r"(?m)^#+ (.*)$")


def pages() -> list[Path]:
    """Return the paths of the English pages in the repository."""
    return [path for pattern in PATTERNS for path in sorted(REPOSITORY.glob(pattern))]


def edition(page: Path, language: str) -> Path:
    """Return the path of a page in a language: README.ja.md beside a README.md, or docs/ja/glossary.md."""
    inside = page.relative_to(REPOSITORY)
    if page.name == "README.md":
        return page.with_suffix(f".{language}{page.suffix}")
    return REPOSITORY / inside.parts[0] / language / Path(*inside.parts[1:])


def messages(text: str) -> list[str]:
    """Return the messages of a page, in its order."""
    return [piece for piece, is_message in cut(text) if is_message]


def translated(text: str, texts: Mapping[tuple[str, str], str]) -> str:
    """Return a page with the translations of its messages, by their keys, "" here, and their English texts."""
    return "".join(texts.get(("", piece), piece) if is_message else piece for piece, is_message in cut(text))


def cut(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a page, which together are the page, and whether each is a message."""
    position = 0
    for block in _blocks(text):
        start = text.index(block, position)
        yield text[position:start], False
        yield block, _has_words(block)
        position = start + len(block)
    yield text[position:], False


def anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    plain = re.sub(r"<[^>]*>|\]\([^)]*\)", "", title)
    return re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")


def anchors(text: str) -> list[str]:
    """Return the anchors of a page's headings, in its order."""
    return [anchor(title) for title in _HEADING.findall(_WHOLE.sub("", text))]


def _blocks(text: str) -> Iterator[str]:
    """Yield the blocks of a page, without the blank lines around them."""
    position = 0
    for found in _WHOLE.finditer(text):
        yield from _prose(text[position : found.start()])
        yield found[0].rstrip("\n")
        position = found.end()
    yield from _prose(text[position:])


def _prose(text: str) -> Iterator[str]:
    for paragraph in filter(str.strip, re.split(r"\n\s*\n", text)):
        lines: list[str] = []
        for line in paragraph.strip("\n").split("\n"):
            if lines and _OPENS.match(line):
                yield "\n".join(lines)
                lines = []
            lines.append(line)
        yield "\n".join(lines)


def _has_words(block: str) -> bool:
    """Return whether a block has words for a reader, unlike comments, front matter and the lines of a container."""
    plain = re.sub(r"<!--.*?-->", "", block, flags=re.S)
    return bool(re.search("[A-Za-z]{2}", plain)) and not block.startswith((":::", "---"))
