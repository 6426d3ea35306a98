"""Words that a user does not want in the corpus: reading the list, and counting its words in a text.

A word of katakana or of Latin letters is found only as a whole word: セール is not found in セールス.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.files import require_file

KATAKANA, LATIN = "ァ-ヺー", "a-z0-9"


def count_blocked(text: str, words: Path) -> int:
    """Return how often words of a list, a UTF-8 file with one a line, occur in a text; # begins a comment."""
    pattern = _pattern(words, words.stat().st_mtime_ns if words.exists() else 0)
    return sum(1 for _ in pattern.finditer(_folded(text)))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


@cache
def _pattern(path: Path, _changed: int) -> re.Pattern[str]:
    """Return a regular expression for the words in a file. It is cached until the file changes."""
    try:
        lines = require_file(path).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise CourseError(f"{path}: not UTF-8 at byte {error.start}; expected one word per line") from None
    words = {_folded(line.strip()) for line in lines if line.strip() and not line.startswith("#")}
    if not words:
        raise CourseError(f"{path}: no words in it; expected one word per line")
    groups = []
    for kind in (KATAKANA, LATIN):
        whole = {word for word in words if re.fullmatch(f"[{kind}]+", word)}
        words -= whole
        if whole:
            groups.append(f"(?<![{kind}])(?:{_trie(whole)})(?![{kind}])")
    if words:
        groups.append(_trie(words))
    return re.compile("|".join(groups))


def _trie(words: Iterable[str]) -> str:
    """Return a regular expression for the words that tries each character of the text once, longest words first."""
    root: dict[str, Any] = {}
    for word in words:
        node = root
        for character in word:
            node = node.setdefault(character, {})
        node[""] = {}
    return _branch(root)


def _branch(node: dict[str, Any]) -> str:
    rest = [re.escape(character) + _branch(inner) for character, inner in sorted(node.items()) if character]
    if not rest:
        return ""
    joined = rest[0] if len(rest) == 1 and "" not in node else f"(?:{'|'.join(rest)})"
    return f"{joined}?" if "" in node else joined
