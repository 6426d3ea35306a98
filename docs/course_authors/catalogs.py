"""The catalogues of a language: every message of the notebooks, the pages and the library, for translators.

notebooks.po has the Markdown cells and the texts of code cells, each under its notebook and cell ("03_tokenizers
c03-007"); pages.po has the Markdown pages, cut by pages.py; course.po, in the package, has what the library says: the
calls of `tr`, `tr_noop` and `progress`, which Babel (https://babel.pocoo.org) finds, and the texts of exercises. The
library reads it compiled, as course.mo. If an English text changes, its translation stays, and is listed as fuzzy until
a translator accepts it; if only numbers change, they change in the translation, too.
"""

import io
import re
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from babel import Locale, UnknownLocaleError
from babel.messages import Catalog, Message
from babel.messages.extract import extract_from_file
from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import PoFileError, read_po, write_po
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_write
from course_lib.language import words
from course_lib.paths import REPOSITORY
from course_lib.workspace.chapters import CHAPTERS

from course_authors import cells, pages
from course_authors.notebooks import BADGE_TAG, SETUP_TAG

NOTEBOOKS, PAGES, COURSE = DOMAINS = ("notebooks", "pages", "course")
LOCALE = REPOSITORY / "docs" / "locale"
LIBRARY = REPOSITORY / "course_lib"
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
# A field of a message, with its format: {number}, {share:.1%}.
FIELD = re.compile(r"\{[^{}]*\}")
# Functions whose first argument is a message; the help of a command; the unit and the label of a progress bar.
KEYWORDS: tuple[dict[str, Any], ...] = (
    {"tr": None, "tr_noop": None, "Command": (2,), "progress": (2,)},
    {"progress": (3,)},
)


class Entry(NamedTuple):
    """A message, the file that it is in, and its key if it has one."""

    text: str
    path: Path
    key: str | None = None


def notebook_texts() -> Iterator[Entry]:
    """Yield the Markdown cells except the badge, and the texts of the code cells except the set-up cell."""
    for path in (path for chapter in CHAPTERS for path in chapter.paths):
        for cell in nbformat.read(path, as_version=4).cells:  # type: ignore[no-untyped-call]
            if not {BADGE_TAG, SETUP_TAG} & {*cell.metadata.get("tags", [])} and cell.source.strip():
                found = [each.text for each in cells.texts(cell.source)] if cell.cell_type == "code" else [cell.source]
                yield from (Entry(text, path, f"{path.stem} {cell.id}") for text in found)


def page_texts() -> Iterator[Entry]:
    """Yield the messages of the Markdown pages."""
    for path in pages.pages():
        yield from (Entry(text, path) for text in pages.messages(path.read_text(encoding="utf8")))


def library_texts() -> Iterator[Entry]:
    """Yield the texts of the exercises, and the messages that the modules of the library show."""
    for name in (name for chapter in CHAPTERS for name in chapter.notebooks.values()):
        for exercise in import_module(f"course_lib.exercises.{name}").CHAPTER.exercises:
            yield from (Entry(text, LIBRARY / "exercises" / f"{name}.py") for text in exercise.texts())
    for path in sorted(LIBRARY.rglob("*.py")):
        yield from marked(path)


def marked(path: Path) -> Iterator[Entry]:
    """Yield the messages that a module shows."""
    found = [each for keywords in KEYWORDS for each in extract_from_file("python", path, keywords=keywords)]
    yield from (Entry(str(message), path) for _, message, *_ in sorted(found, key=lambda each: each[0]))


TEXTS = {NOTEBOOKS: notebook_texts, PAGES: page_texts, COURSE: library_texts}


def template(domain: str) -> Catalog:
    """Return the catalogue of a domain without translations, in the order of the notebooks and files."""
    catalog = Catalog()
    for entry in TEXTS[domain]():
        if entry.text.strip():
            file = entry.path.relative_to(REPOSITORY).as_posix()
            catalog.add(entry.text, locations=[(file, 0)], context=entry.key)
    return catalog


def update(language: str, accept: str = "") -> None:
    """Bring the catalogues of a language in step with the English texts, and compile that of the library.

    Args:
        language: its code, such as "ja".
        accept: ID of a text, as `open_texts` lists it; its translation is right as it is.

    Raises:
        UsageError: if the language is English or unknown, or no translation with this ID is fuzzy.
        CourseError: if a catalogue cannot be read, or a translation has other fields than its message.
    """
    accepted = 0
    for domain in DOMAINS:
        path, catalog = po_file(language, domain), current(language, domain)
        for message in catalog:
            if accept and message.fuzzy and accept == identity(message):
                message.flags.discard("fuzzy")
                accepted += 1
        text = io.BytesIO()
        write_po(text, catalog, width=0, include_lineno=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(text.getvalue())
    compile_library(language)
    if accept and not accepted:
        raise UsageError(f"--accept: {accept!r} is no fuzzy text; `course words {language} --check --texts` lists them")


def open_texts(language: str) -> list[str]:
    """Return a line for each text whose translation is missing or fuzzy, with its ID; write nothing."""
    found = []
    for domain, message in _open(language):
        state, text = "fuzzy" if message.string else "missing", " ".join(str(message.id).split())
        found.append(f"{domain}.po: {state}: {identity(message)}: {text:.70}")
    return found


def open_parts(language: str) -> Counter[str]:
    """Return the number of these texts in each notebook and page that has any, and in the library."""
    return Counter(LIBRARY.name if domain == COURSE else message.locations[0][0] for domain, message in _open(language))


def _open(language: str) -> Iterator[tuple[str, Message]]:
    for domain in DOMAINS:
        for message in current(language, domain):
            if message.id and (message.fuzzy or not message.string):
                yield domain, message


def identity(message: Message) -> str:
    """Return the ID of a message: its notebook and cell, or else the beginning of the text's SHA-256 digest."""
    return message.context or sha256(str(message.id).encode()).hexdigest()[:8]


def current(language: str, domain: str) -> Catalog:
    """Return a catalogue of a language in step with the English texts. Raises as `update`."""
    catalog, new = read(language, domain), template(domain)
    known = {(message.id, message.context) for message in new}
    gone: dict[str | None, dict[str, Message]] = {}
    for message in [each for each in catalog if each.id and each.string and (each.id, each.context) not in known]:
        gone.setdefault(message.context, {})[str(message.id)] = message
    come: dict[str | None, dict[str, Message]] = {}
    for message in [each for each in new if each.id and catalog.get(each.id, each.context) is None]:
        come.setdefault(message.context, {})[str(message.id)] = message
    for context, messages in come.items():
        # The translation of a changed text moves to the new text, in a cell to the most similar one.
        former = gone.get(context, {})
        least = 0.75 if context is None else 0.4 if len(former) > 1 else 0
        for text, before in closest(list(messages), list(former), least).items():
            old = former[before]
            catalog.delete(old.id, old.context)
            same = None if old.fuzzy else renumbered(before, text, str(old.string))
            flags = {"fuzzy"} if same is None else set()
            catalog.add(messages[text].id, same or old.string, flags=flags, context=context)
    catalog.update(new, no_fuzzy_matching=True, update_creation_date=False)
    for message in catalog:
        if message.id and message.string and not message.fuzzy and domain == COURSE:
            fields, given = _fields(message.id), _fields(message.string)
            if fields != given:
                raise CourseError(f"{po_file(language, domain)}: {message.id!r}: fields {given}, not {fields}")
    return catalog


def compile_library(language: str) -> None:
    """Write the library's compiled catalogue from its .po, with the fuzzy translations."""
    with atomic_write(mo_file(language)) as file:
        write_mo(file, _shown(language), use_fuzzy=True)


def is_compiled(language: str) -> bool:
    """Return whether the library's compiled catalogue has the translations that are in its .po."""
    path, compiled = mo_file(language), Catalog()
    if path.exists():
        with path.open("rb") as file:
            compiled = read_mo(file)
    return _strings(compiled) == _strings(_shown(language))


def _strings(catalog: Catalog) -> dict[str, str]:
    return {str(message.id): str(message.string) for message in catalog if message.id and message.string}


def _shown(language: str) -> Catalog:
    """Return the library's catalogue as `tr` shows it: without translations that have other fields than their message.

    Fuzzy translations may be such; their messages stay English.
    """
    catalog = read(language, COURSE)
    for message in list(catalog):
        if message.id and message.string and _fields(message.id) != _fields(message.string):
            catalog.delete(message.id, message.context)
    return catalog


def _fields(text: object) -> list[str]:
    """Return the fields of a message or translation, each once."""
    return sorted({*FIELD.findall(str(text))})


def closest(new: list[str], old: list[str], least: float) -> dict[str, str]:
    """Pair new texts with old ones, each at most once, the most similar first (difflib's ratio, at least `least`)."""
    pairs, matcher = [], SequenceMatcher(autojunk=False)
    for text in new:
        matcher.set_seq2(text)
        for before in old:
            matcher.set_seq1(before)
            if matcher.real_quick_ratio() >= least and matcher.quick_ratio() >= least:
                pairs.append((matcher.ratio(), text, before))
    found: dict[str, str] = {}
    for ratio, text, before in sorted(pairs, reverse=True):
        if ratio >= least and text not in found and before not in found.values():
            found[text] = before
    return found


def renumbered(old: str, new: str, translation: str) -> str | None:
    """Return the translation of `new` if it differs from `old` in numbers only, and the translation has the same ones.

    It may have others as well: *in pairs* is 2人組. If it is not clear which number became which, return None: a
    translator must look.
    """
    before, after = NUMBER.findall(old), NUMBER.findall(new)
    there = [number for number in NUMBER.findall(translation) if number in before]
    if NUMBER.sub("0", old) != NUMBER.sub("0", new) or Counter(before) != Counter(there):
        return None
    changed = dict(zip(before, after, strict=True))
    if before != there and any(changed[one] != other for one, other in zip(before, after, strict=True)):
        return None
    # in the order of the English where that is the translation's, else by value
    numbers = iter(after if before == there else [changed[one] for one in there])
    return NUMBER.sub(lambda found: next(numbers) if found[0] in before else found[0], translation)


def read(language: str, domain: str) -> Catalog:
    """Return a catalogue of a language with its translations, empty if there is no file. Raises as `update`."""
    header = f"# The course in another language: {domain}. CONTRIBUTING.md says how to translate."
    if language == words.SOURCE:
        raise UsageError("language: 'en' is the source of the translations; give another language, such as ja")
    path = po_file(language, domain)
    try:
        Locale.parse(language)
        if not path.exists():
            return Catalog(locale=language, project="course", header_comment=header, fuzzy=False)
        with path.open("rb") as file:
            return read_po(file, locale=language, abort_invalid=True)
    except PoFileError as error:
        raise CourseError(f"{path}: {error}") from error
    except (UnknownLocaleError, ValueError) as error:
        raise UsageError(f"language: {language!r} is unknown; give a code such as ja or zh_CN") from error


def po_file(language: str, domain: str) -> Path:
    """Return the path of a catalogue."""
    return (words.CATALOGUES if domain == COURSE else LOCALE) / language / "LC_MESSAGES" / f"{domain}.po"


def mo_file(language: str) -> Path:
    """Return the path of the library's compiled catalogue, which `tr` reads."""
    return po_file(language, COURSE).with_suffix(".mo")


def translations(language: str, domain: str) -> dict[tuple[str, str], str]:
    """Return the translations of a catalogue, fuzzy ones too, by their keys ("" for pages) and English texts."""
    found = [message for message in current(language, domain) if message.id and message.string]
    return {(message.context or "", str(message.id)): str(message.string) for message in found}
