"""A Typer command made from a plain function, whose annotations are options and arguments (options.py).

It adds --quiet, --profile and, if the function returns something, --json. Where a parameter has the note FromOptions
it adds -c, --set and the options of the settings class (from_options.py). It checks that -o is none of the inputs, puts
standard input where "-" stands, calls the function and prints what it returns (output.py).
"""

import dataclasses
import inspect
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from course_lib import files
from course_lib.checkpoints import aozora
from course_lib.command_line import from_options, output
from course_lib.command_line.from_options import notes
from course_lib.command_line.options import Config, Json, MayHold, Note, Overrides, Profile, Quiet
from course_lib.errors import QUIET, CourseError, UsageError
from course_lib.language.words import tr
from course_lib.settings import profiles

Values = dict[str, Any]  # name of a parameter → its value
Parameters = dict[str, inspect.Parameter]


def command(name: str, function: Callable[..., Any], help: str) -> Any:
    """Return the command that calls a function. --help shows `help` and its docstring after the first paragraph."""
    signature = inspect.signature(function)
    passed: Parameters = dict(signature.parameters)
    product = next((key for key, parameter in passed.items() if Note.PRODUCT in notes(parameter)), None)

    # The parameter with settings is replaced by the options that choose them.
    chosen = from_options.settings_parameter(function)
    of_settings: Parameters = {}
    added: Parameters = {}
    if chosen:
        del passed[chosen.name]
        of_settings = from_options.options(chosen)
        added |= {"config": _keyword("config", Config, None), "overrides": _keyword("overrides", Overrides, None)}
    if signature.return_annotation is not None:
        added["as_json"] = _keyword("as_json", Json, False)
    added |= {"quiet": _keyword("quiet", Quiet, False), "profile": _keyword("profile", Profile, None)}

    def call(**given: Any) -> None:
        with environment(given["profile"], given["quiet"]):
            values = {key: _model_folder(given[key], passed[key]) for key in passed}
            if chosen:
                changes = {key: given[key] for key in of_settings}
                values[chosen.name] = from_options.settings(
                    chosen.cls, chosen.note.section, given["config"], given["overrides"], changes
                )
            target = values[product] if product else None
            _require_no_input(target, given | values, signature.parameters | added)
            with _standard_input(values, passed):
                result = function(**values)
            output.show(result, target, given.get("as_json", False))

    parameters = passed | of_settings | added
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters.values()]
    call.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    call.__annotations__ = {key: parameter.annotation for key, parameter in parameters.items()}
    details = (inspect.getdoc(function) or "").split("\n\n")[1:]
    call.__doc__ = "\n\n".join([tr("{advice}.", advice=help), *details])
    listed = from_options.settings_class(function)
    epilog = from_options.epilog(listed, of_settings) if listed else None
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(name, epilog=epilog, context_settings={"help_option_names": ["-h", "--help"]})(call)
    return typer.main.get_command(app)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


@contextmanager
def environment(profile: str | None, quiet: bool = False) -> Iterator[None]:
    """Set what --profile and --quiet say in the block, also for the processes that it starts."""
    before = dict(os.environ)
    try:
        if profile:
            profiles.profile_file(profile)
            os.environ[profiles.VARIABLE] = profile
            profiles.make_absolute()
        if quiet:
            os.environ[QUIET] = "1"
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _model_folder(value: Any, parameter: inspect.Parameter) -> Any:
    """Return the value of a parameter, with the folder of a model where one is named."""
    if value is None or Note.MODEL not in notes(parameter):
        return value
    return [aozora.named(each) for each in value] if isinstance(value, list) else aozora.named(value)


def _require_no_input(target: object, values: Values, parameters: Parameters) -> None:
    """Raise UsageError if -o is one of the files or folders that the command reads, holds one, or is inside one."""
    if not isinstance(target, Path) or target == files.STANDARD_OUTPUT:
        return
    for name, parameter in parameters.items():
        value, about = values[name], notes(parameter)
        if Note.CONFIG in about:
            if value and target.exists() and value.exists() and target.samefile(value):
                raise UsageError(f"-o {target}: is the input {value}; allowed: a path outside it")
        elif Note.PRODUCT not in about:
            for source in _read_paths(value, Note.NAMES_FILE in about):
                # The file that `<` leads to.
                read = Path("/dev/stdin") if source == Path("-") else source
                if not any(isinstance(note, MayHold) and note.allows(read, target) for note in about):
                    files.require_other(read, target)


def _read_paths(value: Any, names_file: bool) -> Iterator[Path]:
    """Yield the paths in the value of an argument, an option or settings; those in a text if it `names_file`."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, str) and names_file:
        named = Path(value.partition("=")[2])
        yield Path(value) if Path(value).exists() or named == Path() else named
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _read_paths(each, names_file)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _read_paths(getattr(value, field.name), names_file=False)


@contextmanager
def _standard_input(values: Values, parameters: Parameters) -> Iterator[None]:
    """Replace "-" by standard input: by its text among texts, by a file with a copy of it among paths."""
    for name, parameter in parameters.items():
        if Note.INPUT_TEXT in notes(parameter) and "-" in (values[name] or ()):
            text = _text_of_standard_input()
            values[name] = [text if each == "-" else each for each in values[name]]
        if Note.INPUT_FILE in notes(parameter) and Path("-") in (values[name] or ()):
            with _copy_of_standard_input() as copy:
                values[name] = [copy if each == Path("-") else each for each in values[name]]
                yield
            return
    yield


def _text_of_standard_input() -> str:
    """Return the text of standard input without the line breaks at its end."""
    from course_lib.documents import with_newlines

    try:
        return with_newlines(sys.stdin.buffer.read().decode("utf8")).rstrip("\n")
    except UnicodeDecodeError:
        raise CourseError("standard input: not UTF-8") from None


@contextmanager
def _copy_of_standard_input() -> Iterator[Path]:
    """Yield a file with a copy of standard input; errors in the block name it without its temporary folder."""
    with files.temporary_folder("course-input") as folder:
        first = sys.stdin.buffer.read(1)
        copy = folder / ("standard-input.jsonl" if first == b"{" else "standard-input.txt")
        with files.naming(copy), copy.open("wb") as file:
            file.write(first)
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield copy
        except CourseError as error:
            raise type(error)(str(error).replace(f"{folder}{os.sep}", "")) from error
