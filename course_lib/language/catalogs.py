"""The catalogues of a language: every message of the notebooks and the library, for translators.

There are three files in docs/locale/<language>/LC_MESSAGES. notebooks.po has the Markdown cells, each under the name of
its notebook and its id ("03_tokenizers c03-007"). pages.po has the Markdown pages, cut by pages.py. course.po has what
words.py shows: the words of code cells, figures, drawings, tables and progress bars, the texts of the exercises, each
under its key ("corpus 1 hint 2"), and the templates of errors' messages, in the context "error". Babel
(https://babel.pocoo.org) writes the files. If an English text changes, its translation is kept and marked fuzzy: it is
not used until a translator has looked at it.
"""

import ast
import io
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import nbformat

from course_lib import paths
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_write
from course_lib.language import pages, words
from course_lib.language.cell_words import messages as cell_messages
from course_lib.notebooks.execution import BADGE_TAG, SETUP_TAG
from course_lib.paths import REPOSITORY
from course_lib.workspace.chapters import CHAPTERS

if TYPE_CHECKING:
    from babel.messages import Catalog

NOTEBOOKS, PAGES, COURSE = DOMAINS = ("notebooks", "pages", words.DOMAIN)
LOCALE = REPOSITORY / "docs" / "locale"
LIBRARY = Path(__file__).parents[1]
# Functions whose first argument is a message if it is a literal, and the place of the literals for progress bars.
MARKS, BAR, BAR_WORDS = ("tr", "mark", "heading"), "progress", slice(1, 3)
# Classes of errors that are not CourseError or below it.
ERRORS = ("BadParameter", "EOFError", "TrailingBytes", "ValueError", "Again", "_Damaged")
# The function that marks a part of an error's message.
PART = "phrase"
# What pydantic says of a value after "Input" in options, and after "input" in settings (config.py).
INPUT = (
    "should be greater than {limit}",
    "should be greater than or equal to {limit}",
    "should be less than {limit}",
    "should be less than or equal to {limit}",
    "should be a valid integer",
    "should be a valid integer, got a number with a fractional part",
    "should be a valid integer, unable to parse string as an integer",
    "should be a valid number",
    "should be a valid number, unable to parse string as a number",
    "should be a finite number",
    "should be a valid boolean",
    "should be a valid string",
    "should be a valid array",
    "should be an object",
    "should be {value}",
    "should be {values} or {last}",
    "is not a valid path",
)
# Error lines that no such class makes: those of Typer, zipfile and pydantic, and of cli.py and nodes for signals.
LINES = (
    "No such command '{name}'.",
    "No such command '{name}'. Did you mean '{close}'?",
    "No such option: {name}",
    "No such option: {name} (Possible options: {close})",
    "No such option: {name} Did you mean {close}?",
    "Missing command.",
    "Missing argument '{name}'.",
    "Missing option '{name}'.",
    "Option '{name}' requires an argument.",
    "Got unexpected extra argument(s) ({values})",
    "Option '{name}' does not take a value.",
    "File is not a zip file",
    "Invalid value for '{name}': {problem}",
    "Value error, {value} is not one of {allowed}.",
    "{value} is not one of {allowed}.",
    "{value} is not a valid integer.",
    "{value} is not a valid float.",
    "{value} is not in the range {range}.",
    *(f"{start}nput {text}" for start in "Ii" for text in INPUT),
    "string should match pattern {pattern}",
    "string should have at most {number} characters",
    "interrupted; earlier products are unchanged",
    "terminated; earlier products are unchanged",
    "hung up; earlier products are unchanged",
    "interrupted on {node}",
    "terminated on {node}",
    "hung up on {node}",
    "stopped by SIGUSR1 on {node}",
    "the reader of the output has ended, so the run stopped on {node}",
)


class Entry(NamedTuple):
    """A message with what a translator needs to know about it."""

    text: str
    place: str  # file in the repository
    comment: str = ""
    key: str | None = None


class Counts(NamedTuple):
    """The number of messages of a catalogue in each state."""

    translated: int
    fuzzy: int
    missing: int
    obsolete: int


def markdown(notebook: Path) -> Iterator[Entry]:
    """Yield the Markdown cells of a notebook except the badge."""
    for cell in _cells(notebook, "markdown"):
        if BADGE_TAG not in cell.metadata.get("tags", []) and cell.source.strip():
            yield Entry(cell.source, _place(notebook), key=f"{notebook.stem} {cell.id}")


def code_words(notebook: Path) -> Iterator[Entry]:
    """Yield the words in the code cells of a notebook except the set-up cell."""
    for cell in _cells(notebook, "code"):
        if SETUP_TAG not in cell.metadata.get("tags", []):
            for message in cell_messages(cell.source):
                about = f"cell {cell.id}" + (f"; {message.comment}" if message.comment else "")
                yield Entry(message.text, _place(notebook), about)


def library_words() -> Iterator[Entry]:
    """Yield the messages that the modules of the library mark, and the words of its progress bars."""
    for path in sorted(LIBRARY.rglob("*.py")):
        for call in _calls(ast.parse(path.read_text(encoding="utf8"))):
            for argument in call.args[BAR_WORDS] if _name(call) == BAR else call.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and argument.value.strip():
                    yield Entry(argument.value, _place(path))


def error_lines() -> Iterator[Entry]:
    """Yield the templates of the messages with which the library makes errors: "{path}: no such file"."""
    for text in LINES:
        yield Entry(text, _place(LIBRARY / "cli.py"), key=words.ERROR)
    trees = {path: ast.parse(path.read_text(encoding="utf8")) for path in sorted(LIBRARY.rglob("*.py"))}
    kinds = _error_classes(trees.values())
    for path, tree in trees.items():
        for call in _calls(tree, kinds):
            for text in _templates(call.args[0]) if call.args else ():
                if re.search("[A-Za-z]{2}", words.FIELD.sub("", text)):
                    yield Entry(text, _place(path), key=words.ERROR)


def page_texts() -> Iterator[Entry]:
    """Yield the messages of the Markdown pages."""
    for path in pages.pages():
        for text in pages.messages(path.read_text(encoding="utf8")):
            yield Entry(text, _place(path))


def exercise_texts() -> Iterator[Entry]:
    """Yield the tasks, hints, explanations and advice of all exercises."""
    for name in (name for chapter in CHAPTERS for name in chapter.notebooks.values()):
        module = import_module(f"course_lib.exercises.{name}")
        for key, text in module.CHAPTER.texts():
            yield Entry(text, f"course_lib/exercises/{name}.py", key=key)


def template(domain: str) -> "Catalog":
    """Return the catalogue of a domain without translations, in the order of the notebooks and files."""
    notebooks = [path for chapter in CHAPTERS for path in chapter.paths]
    if domain == NOTEBOOKS:
        return _catalog([entry for path in notebooks for entry in markdown(path)])
    if domain == PAGES:
        return _catalog(list(page_texts()))
    cells = [entry for path in notebooks for entry in code_words(path)]
    return _catalog([*cells, *exercise_texts(), *library_words(), *error_lines()])


def update(language: str, folder: Path | None = None) -> dict[Path, Counts]:
    """Bring the catalogues of a language in step with the English texts, compile them, and return their counts.

    Args:
        language: its code, such as "ja".
        folder: where the .po files and the compiled catalogue go; None means docs/locale and course_lib/locale.

    Raises:
        UsageError: if the language is English or unknown.
        CourseError: if a catalogue cannot be read, or a translation lacks a field of its message or has another one, or
            the course is installed without its notebooks.
    """
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import write_po

    require_checkout()
    counts = {}
    for domain in DOMAINS:
        path = po_file(language, domain, folder)
        catalog = read(language, domain, folder)
        _in_step(catalog, template(domain), similar=domain != NOTEBOOKS)
        _require_fields(catalog, path)
        text = io.BytesIO()
        write_po(text, catalog, width=0, include_lineno=False, include_previous=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(text.getvalue())
        if domain == COURSE:
            compiled = (folder or words.COMPILED) / language / "LC_MESSAGES" / f"{COURSE}.mo"
            compiled.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(compiled) as file:
                write_mo(file, catalog)
        counts[path] = count(catalog)
    return counts


def problems(language: str) -> list[str]:
    """Return a line for each message of the catalogues of a language whose translation is missing or fuzzy.

    The messages are those of the English texts as they are now; nothing is written. Raises as `update`.
    """
    require_checkout()
    found = []
    for domain in DOMAINS:
        path, catalog = po_file(language, domain), read(language, domain)
        _in_step(catalog, template(domain), similar=False)
        _require_fields(catalog, path)
        for message in catalog:
            if message.id and (message.fuzzy or not message.string):
                text = " ".join(str(message.id).split())
                state = "fuzzy" if message.string else "missing"
                found.append(f"{_place(path)}: {state}: {message.context or message.locations[0][0]}: {text:.70}")
    return found


def require_checkout() -> None:
    """Raise CourseError if the course is installed without its notebooks."""
    if not paths.NOTEBOOKS.is_dir():
        raise CourseError(f"{paths.NOTEBOOKS}: not found; catalogues and notebooks are written in a checkout")


def read(language: str, domain: str, folder: Path | None = None) -> "Catalog":
    """Return a catalogue of a language with its translations, empty if there is no file. Raises as `update`."""
    from babel import Locale, UnknownLocaleError
    from babel.messages import Catalog
    from babel.messages.pofile import PoFileError, read_po

    header = f"# The course in another language: {domain}. CONTRIBUTING.md says how to translate."
    if language == words.SOURCE:
        raise UsageError("language: 'en' is the source of the translations; give another language, such as ja")
    path = po_file(language, domain, folder)
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


def po_file(language: str, domain: str, folder: Path | None = None) -> Path:
    """Return the path of a catalogue for translators."""
    return (folder or LOCALE) / language / "LC_MESSAGES" / f"{domain}.po"


def count(catalog: "Catalog") -> Counts:
    """Return how many messages of a catalogue are translated, fuzzy, missing, and obsolete."""
    found = [message for message in catalog if message.id]
    fuzzy = sum(message.fuzzy for message in found)
    missing = sum(not message.string for message in found)
    return Counts(len(found) - fuzzy - missing, fuzzy, missing, len(catalog.obsolete))


def _catalog(entries: list[Entry]) -> "Catalog":
    from babel.messages import Catalog

    catalog = Catalog()
    for entry in entries:
        comments = [entry.comment] if entry.comment else []
        catalog.add(entry.text, locations=[(entry.place, 0)], auto_comments=comments, context=entry.key)
    return catalog


def _in_step(catalog: "Catalog", new: "Catalog", similar: bool) -> None:
    """Give a catalogue the messages of `new` in its order.

    The translation of a changed text moves to the new text with the same key, or, if `similar` is true, to a similar
    text, and becomes fuzzy. The former text stays beside it. Translations without a message become obsolete.
    """
    olds = {message.context: message for message in catalog if message.context not in (None, words.ERROR)}
    for message in new:
        old = olds.get(message.context or "")
        if old and old.string and old.id != message.id:
            catalog.delete(old.id, context=old.context)
            catalog.add(message.id, old.string, flags={"fuzzy"}, previous_id=old.id, context=message.context)
    # Babel's update drops the former text of a message that it finds in both catalogues.
    former = {(message.id, message.context): message.previous_id for message in catalog if message.fuzzy}
    catalog.update(new, no_fuzzy_matching=not similar, update_creation_date=False)
    for message in catalog:
        if message.id and message.fuzzy:
            message.previous_id = message.previous_id or former.get((message.id, message.context), [])


def _require_fields(catalog: "Catalog", path: Path) -> None:
    """Raise CourseError if a translation in course.po has other fields than its message."""
    if path.stem != COURSE:
        return
    for message in catalog:
        if not message.id or not message.string or message.fuzzy:
            continue
        fields, given = (set(words.FIELD.findall(str(text))) for text in (message.id, message.string))
        if fields != given:
            wrong = ", ".join(sorted(fields ^ given))
            raise CourseError(f"{path}: {message.id!r}: the translation and the message differ in the fields {wrong}")


def _cells(notebook: Path, kind: str) -> list[Any]:
    read: Any = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    return [cell for cell in read.cells if cell.cell_type == kind]


def _error_classes(trees: Iterable[ast.Module]) -> tuple[str, ...]:
    """Return the names of CourseError, of the classes below it in some modules, of ERRORS, and PART."""
    found = {CourseError.__name__, PART, *ERRORS}
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while new := {node.name for node in classes if found & {ast.unparse(base) for base in node.bases}} - found:
        found |= new
    return tuple(found)


def _templates(node: ast.expr) -> Iterator[str]:
    """Yield the templates of an error's message: a text, an f-string, or both sides of a conditional expression.

    A field is called by its variable, or by its number if it is another expression. It has no format: the fields of a
    finished message are texts.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from (text for side in (node.body, node.orelse) for text in _templates(side))
    elif isinstance(node, ast.JoinedStr):
        text, fields = "", 0
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                fields += 1
                text += f"{{{value.value.id if isinstance(value.value, ast.Name) else fields}}}"
            elif isinstance(value, ast.Constant):
                text += str(value.value)
        yield text


def _calls(tree: ast.AST, names: tuple[str, ...] = (*MARKS, BAR)) -> list[ast.Call]:
    """Return the calls of functions that get messages, in the order of the file."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node) in names]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def _name(call: ast.Call) -> str:
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))


def _place(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()
