"""Word boundaries by MeCab with the Juman dictionary, without the traps of calling it naively.

MeCab drops spaces, stops at a NUL, may die on very long strings, and this dictionary has entries that end inside a character. So:
text is cut at what MeCab cannot carry and into pieces of bounded length, its words are compared with the text they came from, and where they
do not add up (or cannot be decoded) the same analysis is read as byte offsets, and a boundary inside a character is ignored.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

LONGEST = 1000  # characters given to MeCab at once; sentences are far shorter, and longer runs only cost time
UNFIT = re.compile("([\x00\n\r\ud800-\udfff])")  # never given to MeCab; a token of its own
CUT = re.compile(r"[。！？!?、，,\s](?!.*[。！？!?、，,\s])", re.S)  # the last good place to cut


@lru_cache(maxsize=1)
def _taggers() -> tuple[Any, Any]:
    """(words separated by spaces, byte offsets). Made on first use: loading the dictionary takes some milliseconds."""
    import jumandic
    from fugashi import GenericTagger

    offsets = "%ps,%pe\\\\s"  # fugashi splits its arguments like a shell, so the backslash is doubled
    formats = f"-F {offsets} -U {offsets} -E \\\\n"
    return GenericTagger(f"{jumandic.MECAB_ARGS} -Owakati"), GenericTagger(f"{jumandic.MECAB_ARGS} {formats}")


def words(text: str) -> list[str]:
    """The words of a text (any text): `"".join(words(text)) == text`. Each space is a word of its own."""
    if len(text) <= LONGEST and not UNFIT.search(text):
        return _piece(text) if text else []
    return [word for piece in _pieces(text) for word in (_piece(piece) if not UNFIT.match(piece) else [piece])]


def plain_line(text: str) -> str | None:
    """The words of a text separated by spaces, where MeCab's own line can be taken as it is: most sentences. Else None."""
    if len(text) > LONGEST or " " in text or not text.isprintable():
        return None
    try:
        line: str = _taggers()[0].parse(text)
    except UnicodeDecodeError:
        return None
    return line if line.replace(" ", "") == text else None


def _pieces(text: str) -> Iterator[str]:
    for part in UNFIT.split(text):
        at = 0
        while len(part) - at > LONGEST:
            place = CUT.search(part, at + LONGEST // 2, at + LONGEST)
            end = place.end() if place else at + LONGEST
            yield part[at:end]
            at = end
        if at < len(part):
            yield part[at:]


def _piece(text: str) -> list[str]:
    try:
        found: list[str] = _taggers()[0].parse(text).split(" ")
    except UnicodeDecodeError:  # a boundary inside a character
        return _by_offsets(text)
    if " " not in text:
        return found if "".join(found) == text else _by_offsets(text)
    return _with_spaces(text, found) or _by_offsets(text)


def _with_spaces(text: str, found: list[str]) -> list[str] | None:
    """The words with the spaces between them put back; None if they do not add up to the text."""
    whole, at = [], 0
    for word in found:
        while text.startswith(" ", at):
            whole.append(" ")
            at += 1
        if not text.startswith(word, at):
            return None
        if word:
            whole.append(word)
        at += len(word)
    whole += text[at:]
    return whole if not text[at:].strip(" ") else None


def _by_offsets(text: str) -> list[str]:
    """The same analysis, read as byte offsets: nothing is lost, and a boundary inside a character is dropped."""
    content = text.encode()
    borders = {0, len(content)}
    for pair in _taggers()[1].parse(text).split():
        borders.update(map(int, pair.split(",")))
    places = sorted(b for b in borders if b == len(content) or content[b] & 0xC0 != 0x80)
    found = [content[start:end].decode() for start, end in pairwise(places)]
    return [part for word in found for part in (word if word.isspace() else [word])]
