"""The words that a reader sees, in the language that COURSE_LANG names. English is the source and the default.

Library code writes `tr("{number} documents", number=3)`. Cells of notebooks keep plain `print(f"…")`: cell_words.py
translates them while they run. The catalogues are gettext's (https://docs.python.org/3/library/gettext.html), compiled
to locale/<language>/LC_MESSAGES/course.mo; catalogs.py writes them. A message without a translation stays English.
"""

import gettext
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError, UsageError

# The language, and a folder with catalogues other than the course's own, for authors.
VARIABLE, FOLDER = "COURSE_LANG", "COURSE_LOCALE"
SOURCE = "en"
DOMAIN = "course"
COMPILED = Path(__file__).parents[1] / "locale"
# A field of a message, with its format: {number}, {share:.1%}.
FIELD = re.compile(r"\{[^{}]*\}")
# The context of errors' messages in the catalogues, and how deep such a message may hold others.
ERROR, DEEPEST = "error", 4
# The shortest name [characters].
SHORTEST = 3
# What may come before the message of an error: the file of a key, the address of a server, a node.
_PLACE = r"(?:(?P<place>(?:\S+: )*?\S+): )?"
# A template with fields that has this is a whole message: two words, or a sign between its parts.
_WHOLE = re.compile(r"[:;'_-]|[A-Za-z]{2,}.*\s[A-Za-z]{2,}")
# The width of a field, with what fills it and where the text stands: "<12" or "　<3".
_WIDTH = re.compile(r"(?s)(.?[<>^])?(\d+)")


def tr(message: str, /, **fields: Any) -> str:
    """Return a message in the reader's language, with its fields filled in as by str.format.

    The message is a literal, which catalogs.py extracts, or a variable whose values are marked with `mark`. Raises
    UsageError if COURSE_LANG names a language without a catalogue.
    """
    text = _lookup(message)
    return text.format(**fields) if fields else text


def keyed(key: str, text: str) -> str:
    """Return a text that the catalogue holds under a key, such as "corpus 1 hint 2", in the reader's language."""
    return _catalogue(language(), _folder()).pgettext(key, text) if text else text


def error_line(message: str) -> str:
    """Return the finished message of an error in the reader's language.

    The library raises errors with English messages, which programs may examine. Here, the template that a message was
    made from, such as "{path}: no such file", is found in the catalogue, and the fields of its translation are filled
    in; fields that are messages themselves are translated, too. A message without a template is unchanged, and so is
    every message if the language has no catalogue.
    """
    try:
        return message if language() == SOURCE else _line(message, DEEPEST)
    except CourseError:
        return message


def mark(message: str) -> str:
    """Return the message itself. It marks a literal as a message that `tr` gets later as the value of a variable."""
    return message


def phrase(text: str) -> str:
    """Return the text itself. It marks an f-string or a literal as a part of an error's message for `error_line`."""
    return text


def language() -> str:
    """Return the reader's language, as in COURSE_LANG: "en", or the name of a catalogue such as "ja"."""
    return os.environ.get(VARIABLE) or SOURCE


def require_language() -> None:
    """Raise UsageError if COURSE_LANG names a language without a catalogue."""
    _catalogue(language(), _folder())


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Return a template of a notebook's cell in the reader's language, with its fields, which are formatted texts."""
    return _filled(_lookup(template), fields)


def shown(value: Any, conversion: str = "", spec: str = "") -> str:
    """Return a value as an f-string formats it. If it is a name in the catalogue, it is translated first.

    Lists, tuples and dictionaries of names are translated, too. A translated name is padded to its width on the
    screen, where a Japanese character takes two columns.
    """
    if conversion:
        conversions: dict[str, Callable[[object], str]] = {"r": repr, "s": str, "a": ascii}
        return format(conversions[conversion](value), spec)
    name = _named(value)
    width = _WIDTH.fullmatch(spec)
    if width and isinstance(name, str) and name != value:
        spec = f"{width[1] or ''}{max(int(width[2]) - wide_characters(name), 0)}"
    return format(name, spec)


def wide_characters(text: str) -> int:
    """Return how many characters of a text take two columns on the screen, as Japanese ones do."""
    return sum(unicodedata.east_asian_width(character) in "WF" for character in text)


def heading(word: str, spec: str = "") -> str:
    """Return a word of a table in the reader's language, padded by a spec of an f-string such as "<14"."""
    return shown(word, spec=spec)


def printed(value: Any) -> str:
    """Return a value as `print` prints it, a name or the message of an error in the reader's language."""
    return str(_named(value))


def _named(value: Any) -> Any:
    """Return a name or an error in the reader's language; in lists, tuples and dictionaries, too.

    Other values are unchanged.
    """
    if isinstance(value, CourseError):
        return error_line(str(value))
    if type(value) is str:
        if len(value) < SHORTEST:  # rather a token or a unit
            return value
        name = _lookup(value)
        # or the description of a fault, which an error's message holds, too
        return _catalogue(language(), _folder()).pgettext(ERROR, value) if name == value and " " in value else name
    if type(value) in (list, tuple):
        return type(value)(map(_named, value))
    return {_named(key): _named(each) for key, each in value.items()} if type(value) is dict else value


def _lookup(message: str) -> str:
    # The translation of the empty message is the catalogue's header.
    if not message:
        return message
    text = _catalogue(language(), _folder()).gettext(message)
    # A translation that lacks a field, or has another one, is of no use.
    return text if set(FIELD.findall(text)) == set(FIELD.findall(message)) else message


def _filled(text: str, fields: Mapping[str, str]) -> str:
    return FIELD.sub(lambda field: fields.get(field[0][1:-1], field[0]), text)


def _line(message: str, depth: int) -> str:
    for pattern, names, translation, is_part in _patterns(language(), _folder()) if depth else ():
        if (depth < DEEPEST or not is_part) and (found := pattern.fullmatch(message)):
            values = [_line(value, depth - 1) for value in found.groups()[pattern.groups - len(names) :]]
            text = _filled(translation, dict(zip(names, values, strict=True)))
            place = found.groupdict().get("place")
            return tr("{place}: {problem}", place=place, problem=text) if place else text
    return message


@cache
def _patterns(name: str, folder: Path) -> list[tuple[re.Pattern[str], list[str], str, bool]]:
    """Return a pattern for each template of an error's message, its fields, its translation, and whether it is a part.

    The longest come first. Parts such as "unknown {shown}" are no message themselves: they would match those of other
    programs.
    """
    found, prefix = [], f"{ERROR}\4"
    # gettext has no public list of a catalogue's messages.
    entries: dict[Any, str] = getattr(_catalogue(name, folder), "_catalog", {})
    for key, translation in entries.items():
        message = str(key).removeprefix(prefix)
        names = [field[1:-1] for field in FIELD.findall(message)]
        if message != key:
            parts = FIELD.split(message)
            # A template that begins with a field takes the place into the field.
            pattern = re.compile((_PLACE if parts[0] else "") + "(.*?)".join(map(re.escape, parts)), re.DOTALL)
            is_part = bool(names) and not _WHOLE.search("".join(parts))
            found.append((len("".join(parts)), pattern, names, translation, is_part))
    return [each[1:] for each in sorted(found, key=lambda each: -each[0])]


def _folder() -> Path:
    return Path(os.environ.get(FOLDER) or COMPILED)


@cache
def _catalogue(name: str, folder: Path) -> gettext.NullTranslations:
    if name == SOURCE:
        return gettext.NullTranslations()
    found = sorted(path.parent.parent.name for path in folder.glob(f"*/LC_MESSAGES/{DOMAIN}.mo"))
    if name not in found:
        raise UsageError(f"{VARIABLE}: {name!r} has no catalogue; allowed: {', '.join([SOURCE, *found])}")
    path = folder / name / "LC_MESSAGES" / f"{DOMAIN}.mo"
    try:
        with path.open("rb") as file:
            return gettext.GNUTranslations(file)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise CourseError(f"{path}: not a compiled catalogue ({error}); run `course words {name}`") from error
