"""A command made from a function: arguments and options from its signature, settings from their dataclass.

Parameters are annotated with their help text, as in `tokenizer: Annotated[Path, "tokenizer folder"]`, and numbers also
with limits such as {"min": 1}. A text that may name a file has READS, and an input that may hold the product has
{"holds": function of input and product}. Positional parameters are arguments, those after `*` are options. Some names
have one meaning in every verb: `target` is -o, `workers` is --workers, `config` and `overrides` are -c and --set, and
`sources` and `prompts` take "-" for standard input. A parameter whose type is a settings class adds -c, --set and an
option for each single value of the class. The function returns what output.py prints, as text or JSON.
"""

import dataclasses
import inspect
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from course_lib import files
from course_lib.command_line import options, output
from course_lib.errors import CourseError, UsageError
from course_lib.language.words import tr
from course_lib.parallel import default_workers


def path(value: str) -> Path:
    """Return a path on the command line. The empty text is an error, which Path would take for the current folder."""
    if not value:
        raise typer.BadParameter("'' is not a path")
    return Path(value)


# A text that may name a file which the verb reads, also as NAME=FILE.
READS = {"reads": True}
# More processes than this cost memory and gain nothing.
MOST_WORKERS = max(64, 4 * default_workers())
WORKERS = typer.Option("--workers", min=1, max=MOST_WORKERS, help="processes; default: the cores of this machine")
CONFIG = typer.Option("-c", "--config", metavar="FILE", help="YAML settings, or the name of a profile", parser=path)
SET = typer.Option("--set", metavar="KEY=VALUE", help="one setting (dotted key); repeatable")
JSON = typer.Option("--json", help="print the result as JSON")
QUIET = typer.Option("-q", "--quiet", help="print no progress and no messages, only results and errors")
PROFILE = typer.Option("--profile", metavar="NAME", help="profile to use instead of COURSE_PROFILE")


def settings_class(function: Callable[..., Any]) -> type[Any] | None:
    """Return the class of the settings that a function takes, or that its kind of run reads from -c; None without."""
    return _settings(function)[1] or getattr(getattr(function, "__self__", None), "settings", None)


def command(name: str, function: Callable[..., Any], help: str, section: str = "", text: bool = False) -> Any:
    """Return the command that calls a function. --help shows `help` and its docstring after the first paragraph."""
    signature = inspect.signature(function)
    settings, cls = _settings(function)
    parameters = {each.name: _parameter(each, text) for each in signature.parameters.values() if each.name != settings}
    options_of = [_field(field) for field in dataclasses.fields(cls)] if cls else []
    fields = {each.name: each for each in options_of if each and each.name not in (*parameters, "output")}
    parameters |= fields
    common = [_keyword("quiet", bool, QUIET, False), _keyword("profile", str | None, PROFILE)]
    if signature.return_annotation is not None:
        common.insert(0, _keyword("as_json", bool, JSON, False))
    if cls:
        common[:0] = [_keyword("config", Path | None, CONFIG), _keyword("overrides", list[str] | None, SET)]
    parameters |= {each.name: each for each in common}

    def call(**values: Any) -> None:
        with options.environment(values.pop("profile"), values.pop("quiet")):
            as_json = values.pop("as_json", False)
            if cls:
                changes = {key: values.pop(key) for key in fields}
                file, overrides = values.pop("config"), values.pop("overrides")
                values[settings] = options.settings(cls, section, file, overrides, changes)
            given = {key: value for key, value in values.items() if value is not None and value != []}
            _require_no_input(given, signature, file if cls else None)
            with _standard_input(given):
                result = function(**given)
            output.show(result, given.get("target"), as_json)

    call.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    call.__annotations__ = {key: parameter.annotation for key, parameter in parameters.items()}
    call.__doc__ = "\n\n".join([tr("{advice}.", advice=help), *(inspect.getdoc(function) or "").split("\n\n")[1:]])
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    listed = settings_class(function)
    epilog = options.epilog(listed, fields) if listed else None
    app.command(name, epilog=epilog, context_settings={"help_option_names": ["-h", "--help"]})(call)
    return typer.main.get_command(app)


def _settings(function: Callable[..., Any]) -> tuple[str, type[Any] | None]:
    """Return the parameter of a function whose type is a settings class, and the class; ("", None) without."""
    for parameter in inspect.signature(function).parameters.values():
        if isinstance(parameter.annotation, type) and dataclasses.is_dataclass(parameter.annotation):
            return parameter.name, parameter.annotation
    return "", None


def _require_no_input(given: dict[str, Any], signature: inspect.Signature, config: Path | None) -> None:
    """Raise UsageError if -o is one of the files or folders that the verb reads, holds one, or is inside one."""
    target = given.get("target")
    if not isinstance(target, Path) or target == files.STANDARD_OUTPUT:
        return
    settings = config or given.get("config")
    if settings and target.exists() and settings.exists() and target.samefile(settings):
        raise UsageError(f"-o {target}: is the input {settings}; allowed: a path outside it")
    for name, value in given.items():
        if name in ("target", "config"):
            continue
        notes = _notes(signature.parameters[name])
        for source in _read_paths(value, "reads" in notes):
            if source == Path("-"):
                # The same file, if `<` leads there.
                source = Path("/dev/stdin")
            if "holds" not in notes or not notes["holds"](source, target):
                files.require_other(source, target)


def _read_paths(value: Any, reads: bool) -> Iterator[Path]:
    """Yield the paths in the value of an argument, an option or settings; with `reads` also those given as text."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, str) and reads:
        named = Path(value.partition("=")[2])
        yield Path(value) if Path(value).exists() or named == Path() else named
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _read_paths(each, reads)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _read_paths(getattr(value, field.name), reads)


def _notes(parameter: inspect.Parameter) -> dict[str, Any]:
    """Return what the annotation of a parameter has besides its type and help."""
    return dict(*get_args(parameter.annotation)[2:]) if get_origin(parameter.annotation) is Annotated else {}


def _keyword(name: str, kind: Any, info: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info], default=default)


def _parameter(parameter: inspect.Parameter, text: bool) -> inspect.Parameter:
    """Return the argument or option for a parameter of a function."""
    kind, help, limits = parameter.annotation, "", {}
    if get_origin(kind) is Annotated:
        kind, help, *_ = get_args(kind)
        limits = {key: value for key, value in _notes(parameter).items() if key not in ("reads", "holds")}
    name, several = parameter.name.rstrip("_"), get_origin(kind) is Sequence
    if name == "config":
        return _keyword(name, Path | None, CONFIG)
    if name == "overrides":
        return _keyword(name, list[str] | None, SET)
    if name == "workers":
        return _keyword(name, int, WORKERS, default_workers())
    inner = get_args(kind)[0] if several or get_origin(kind) in (Union, UnionType) else kind
    default = ... if parameter.default is parameter.empty else None if several else parameter.default
    full: Any = list[inner] if several else inner  # type: ignore[valid-type]
    if default is None:
        full = full | None
    if inner is Path:
        limits = limits | {"parser": path}
    if name == "target":
        if inner is Path:
            limits["parser"] = _text_product if text else _product
        help = help or "path of the product" + "; - is standard output" * text
        info = typer.Option("-o", "--output", metavar="OUT", help=help, **limits)
    elif parameter.kind is parameter.KEYWORD_ONLY:
        info = typer.Option(f"--{name.replace('_', '-')}", help=help, **limits)
    else:
        metavar = (name.removesuffix("s") if several else name).upper()
        info = typer.Argument(metavar=metavar, help=help, **limits)
    return _keyword(parameter.name, full, info, default)


def _field(field: "dataclasses.Field[Any]") -> inspect.Parameter | None:
    """Return the option for a setting, whose class checks the value; None if it is no single value."""
    info: Any = field.default
    members = [each for each in get_args(field.type) if each is not NoneType]
    is_choice = get_origin(field.type) is Literal
    kind = str if is_choice or str in members else next(iter(members), field.type)
    if kind not in (bool, int, float, str) or info.default_factory:
        return None
    name = field.name.replace("_", "-")
    flags = f"--{name}/--no-{name}" if info.default is True else f"--{name}"
    metavar = "|".join(map(str, members)) if is_choice else None
    default = "unset" if info.default is None else info.default
    help = info.description if kind is bool else f"{info.description} [default: {default}]"
    return _keyword(field.name, kind | None, typer.Option(flags, metavar=metavar, help=help))


def _product(value: str) -> Path:
    """Return the path of -o. Raises UsageError if it is a device, a pipe or standard output."""
    if value == "-":
        raise typer.BadParameter("standard output takes one text only; allowed: a path")
    return files.require_replaceable(path(value))


def _text_product(value: str) -> Path:
    return files.STANDARD_OUTPUT if value == "-" else _product(value)


@contextmanager
def _standard_input(values: dict[str, Any]) -> Iterator[None]:
    """Replace "-" among `prompts` and `sources` by standard input: its text, or a file with a copy of it."""
    if "-" in values.get("prompts", ()):
        from course_lib.documents import with_newlines

        try:
            text = with_newlines(sys.stdin.buffer.read().decode("utf8")).rstrip("\n")
        except UnicodeDecodeError:
            raise CourseError("standard input: not UTF-8") from None
        values["prompts"] = [text if prompt == "-" else prompt for prompt in values["prompts"]]
    if Path("-") not in values.get("sources", ()):
        yield
        return
    with files.temporary_folder("course-input") as folder:
        first = sys.stdin.buffer.read(1)
        copy = folder / ("standard-input.jsonl" if first == b"{" else "standard-input.txt")
        with files.naming(copy), copy.open("wb") as file:
            file.write(first)
            shutil.copyfileobj(sys.stdin.buffer, file)
        values["sources"] = [copy if source == Path("-") else source for source in values["sources"]]
        try:
            yield
        except CourseError as error:
            raise type(error)(str(error).replace(f"{folder}{os.sep}", "")) from error
