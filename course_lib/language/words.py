"""The texts that a reader sees, in the language that COURSE_LANG names. English is the source and the default.

Where the library makes a text for people, it writes `tr("{number} documents", number=3)`; Babel finds these calls.
Translators write locale/<language>/LC_MESSAGES/course.po. `course words` compiles it to course.mo beside it, which
gettext reads. A message without a translation stays English; one whose English changed (fuzzy) keeps its former
translation.
"""

import os
from functools import cache
from gettext import GNUTranslations, NullTranslations
from pathlib import Path
from typing import Any

from course_lib.errors import UsageError

VARIABLE, SOURCE = "COURSE_LANG", "en"
CATALOGUES = Path(__file__).parents[1] / "locale"


def tr(message: str, /, **fields: Any) -> str:
    """Return a message in the reader's language, with its fields filled in as by str.format."""
    # For gettext, the empty message is the header of the catalogue.
    text = _catalogue(language()).gettext(message) if message else ""
    return text.format(**fields) if fields else text


def tr_noop(message: str) -> str:
    """Return the message itself: a literal that is stored in English, and that `tr` gets where it is shown."""
    return message


def language() -> str:
    """Return the reader's language, as in COURSE_LANG: "en", or the name of a catalogue such as "ja"."""
    return os.environ.get(VARIABLE) or SOURCE


def require_language() -> None:
    """Raise UsageError if COURSE_LANG names a language without a catalogue."""
    _catalogue(language())


@cache
def _catalogue(name: str) -> NullTranslations:
    """Return the catalogue of a language, which translates; that of English returns each message as it is."""
    if name == SOURCE:
        return NullTranslations()
    compiled = {path.parents[1].name: path for path in sorted(CATALOGUES.glob("*/LC_MESSAGES/course.mo"))}
    if name not in compiled:
        raise UsageError(f"{VARIABLE}: {name!r} has no catalogue; allowed: {', '.join([SOURCE, *compiled])}")
    with compiled[name].open("rb") as file:
        return GNUTranslations(file)
