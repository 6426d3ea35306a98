"""Words that a user does not want in the corpus: reading the list, and counting its words in a text.

A word of katakana or of Latin letters is found only as a whole word: セール is not found in セールス.
"""

import re
import unicodedata
from collections import defaultdict
from functools import cache
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.files import require_file

KATAKANA, LATIN = "ァ-ヺー", "a-z0-9"


def count_blocked(text: str, words: Path) -> int:
    """Return how often words of a list, a UTF-8 file with one a line, occur in a text; # begins a comment."""
    return len(_pattern(words, require_file(words).stat().st_mtime_ns).findall(_folded(text)))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


@cache
def _pattern(path: Path, _changed: int) -> re.Pattern[str]:
    """Return a regular expression for the words in a file. It is cached until the file changes."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
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


def _trie(words: set[str]) -> str:
    """Return a regular expression for the words that tries each character of the text once, longest words first."""
    groups: dict[str, set[str]] = defaultdict(set)
    for word in words - {""}:
        groups[word[0]].add(word[1:])
    branches = "|".join(re.escape(character) + _trie(rest) for character, rest in sorted(groups.items()))
    return f"(?:{branches}){'?' if '' in words else ''}" if groups else ""
