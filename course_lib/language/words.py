"""The texts that a reader sees, in the language that COURSE_LANG names. English is the source and the default.

Where the library makes a text for people, it writes `tr("{number} documents", number=3)`; Babel finds these calls. The
catalogues, gettext's locale/<language>/LC_MESSAGES/course.po, are read as they are, so nothing is compiled. A message
without a translation stays English; one whose English changed (fuzzy) keeps its former translation.
"""

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from course_lib.errors import UsageError

VARIABLE, SOURCE = "COURSE_LANG", "en"
CATALOGUES = Path(__file__).parents[1] / "locale"
# A field of a message, with its format: {number}, {share:.1%}.
FIELD = re.compile(r"\{[^{}]*\}")


def tr(message: str, /, **fields: Any) -> str:
    """Return a message in the reader's language, with its fields filled in as by str.format."""
    text = _catalogue(language()).get(message, message)
    return text.format(**fields) if fields else text


def mark(message: str) -> str:
    """Return the message itself: a literal that is stored in English, and that `tr` gets where it is shown."""
    return message


def language() -> str:
    """Return the reader's language, as in COURSE_LANG: "en", or the name of a catalogue such as "ja"."""
    return os.environ.get(VARIABLE) or SOURCE


def require_language() -> None:
    """Raise UsageError if COURSE_LANG names a language without a catalogue."""
    _catalogue(language())


def read(path: Path) -> dict[str, str]:
    """Return the translations in a .po file by their messages, except those that lack a field of their message."""
    messages = {}
    for block in path.read_text(encoding="utf8").split("\n\n"):
        entry, key = {"msgid": "", "msgstr": ""}, ""
        for line in block.splitlines():
            if line.startswith("#"):
                continue
            if not line.startswith('"'):
                key, _, line = line.partition(" ")
                entry[key] = ""
            # The escapes of gettext are those of JSON.
            entry[key] += json.loads(line)
        message, text = entry["msgid"], entry["msgstr"]
        if message and text and set(FIELD.findall(message)) == set(FIELD.findall(text)):
            messages[message] = text
    return messages


@cache
def _catalogue(name: str) -> dict[str, str]:
    if name == SOURCE:
        return {}
    found = sorted(path.parents[1].name for path in CATALOGUES.glob("*/LC_MESSAGES/course.po"))
    if name not in found:
        raise UsageError(f"{VARIABLE}: {name!r} has no catalogue; allowed: {', '.join([SOURCE, *found])}")
    return read(CATALOGUES / name / "LC_MESSAGES" / "course.po")
