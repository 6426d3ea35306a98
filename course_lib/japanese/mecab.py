"""Segmentation of text into words with MeCab and the Juman dictionary, without losing text.

MeCab drops spaces, stops at a NUL character and may crash on very long strings. Some dictionary entries end inside a
character. This module therefore cuts the text into pieces that MeCab can process, compares the words with the text, and
if they differ uses the byte offsets from the same analysis.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

# Maximum number of characters sent to a segmenter at once. Sentences are far shorter, longer strings cost MeCab time,
# and Juman++ drops lines of more than 4,096 bytes (jumanpp.py).
LONGEST = 1000
# Characters that are never sent to MeCab; each is a word of its own.
UNFIT = re.compile("([\x00\n\r\ud800-\udfff])")
# The last sentence end, comma or whitespace, after which a long text is best cut.
LAST_BREAK = re.compile(r"[。！？!?、，,\s](?!.*[。！？!?、，,\s])", re.S)


# Output formats (https://taku910.github.io/mecab/format.html): words separated by spaces, and their byte offsets.
WORDS_FORMAT, OFFSETS_FORMAT = "-Owakati", r"-F %ps,%pe\\s -U %ps,%pe\\s -E \\n"


@cache
def tagger(options: str) -> Any:
    """Return a MeCab with the Juman dictionary. fugashi splits options like a shell, so backslashes are doubled."""
    import jumandic
    from fugashi import GenericTagger

    return GenericTagger(f"{jumandic.MECAB_ARGS} {options}")


def words(text: str) -> list[str]:
    """Return the words in any text: `"".join(words(text)) == text`. Each space is a word of its own."""
    if len(text) <= LONGEST and not UNFIT.search(text):
        return _piece(text) if text else []
    found: list[str] = []
    for part in UNFIT.split(text):
        for piece in cut(part):
            found += [piece] if UNFIT.match(piece) else _piece(piece)
    return found


def cut(text: str) -> Iterator[str]:
    """Yield a text in pieces of at most LONGEST characters, cut after a sentence, comma or whitespace if possible."""
    at = 0
    while len(text) - at > LONGEST:
        found = LAST_BREAK.search(text, at + LONGEST // 2, at + LONGEST)
        end = found.end() if found else at + LONGEST
        yield text[at:end]
        at = end
    if at < len(text):
        yield text[at:]


def _piece(text: str) -> list[str]:
    """Return the words in a text that MeCab can process."""
    try:
        found: list[str] = tagger(WORDS_FORMAT).parse(text).split(" ")
    except UnicodeDecodeError:
        # A word boundary lies inside a character.
        return _by_offsets(text)
    return found if "".join(found) == text else _by_offsets(text)


def _by_offsets(text: str) -> list[str]:
    """Return the words from the same analysis by byte offsets, without losing text or splitting a character."""
    content = text.encode()
    offsets = {0, len(content)}
    for pair in tagger(OFFSETS_FORMAT).parse(text).split():
        offsets.update(map(int, pair.split(",")))
    # A byte 10xxxxxx is inside a character (UTF-8).
    boundaries = sorted(each for each in offsets if each == len(content) or content[each] & 0xC0 != 0x80)
    found: list[str] = []
    for start, end in pairwise(boundaries):
        word = content[start:end].decode()
        # Each space is a word of its own.
        found += list(word) if word.isspace() else [word]
    return found
