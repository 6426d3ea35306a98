"""A command made from a function: arguments and options from its signature, settings from their dataclass.

Parameters are annotated with their help text, as in `tokenizer: Annotated[Path, "tokenizer folder"]`, and numbers also
with limits such as {"min": 1}. Positional parameters are arguments, those after `*` are options. Some names have one
meaning in every verb: `target` is -o, `workers` is --workers, `config` and `overrides` are -c and --set, and `sources`
and `prompts` take "-" for standard input. A parameter whose type is a settings class adds -c, --set and an option for
each single value of the class. The function returns what output.py prints, as text or JSON.
"""

import dataclasses
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import typer

from course_lib import files
from course_lib.command_line import options, output
from course_lib.errors import CourseError
from course_lib.notebooks import progress
from course_lib.parallel import default_workers
from course_lib.settings import profiles

# More processes than this cost memory and gain nothing.
MOST_WORKERS = max(64, 4 * default_workers())
WORKERS = typer.Option("--workers", min=1, max=MOST_WORKERS, help="processes; default: the cores of this machine")
JSON = typer.Option("--json", help="print the result as JSON")
QUIET = typer.Option("-q", "--quiet", help="print no progress and no remarks, only results and errors")
PROFILE = typer.Option("--profile", metavar="NAME", help="profile to use instead of COURSE_PROFILE")


def settings_class(function: Callable[..., Any]) -> type[Any] | None:
    """Return the class of the settings that a function takes, or that its kind of run reads from -c; None without."""
    settings = _parameters(function, text=False)[1]
    return settings.cls if settings else getattr(getattr(function, "__self__", None), "settings", None)


def command(name: str, function: Callable[..., Any], help: str, section: str = "", text: bool = False) -> Any:
    """Return the command that calls a function.

    Args:
        name: the last word of the command.
        function: the function, with annotated parameters.
        help: one line for lists of commands; --help adds what the function's docstring says after its first paragraph.
        section: the section of a profile that has these settings, for `-c PROFILE`; "" if none has.
        text: whether the product is one text, which `-o -` writes to standard output.
    """
    parameters, settings = _parameters(function, text)

    def call(**values: Any) -> None:
        set_environment(values.pop("profile"), values.pop("quiet"))
        as_json = values.pop("as_json", False)
        if settings:
            changes = {key: values.pop(key) for key in settings.fields}
            values[settings.parameter] = options.settings(
                settings.cls, section, values.pop("config"), values.pop("overrides"), changes
            )
        given = {key: value for key, value in values.items() if value is not None and value != []}
        with _standard_input(given):
            result = function(**given)
        output.show(result, given.get("target"), as_json)

    call.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    call.__annotations__ = {key: parameter.annotation for key, parameter in parameters.items()}
    more = (inspect.getdoc(function) or "").split("\n\n")[1:]
    paragraphs = [help + "." * (not help.endswith(".")), *(each for each in more if ":\n" not in each)]
    call.__doc__ = "\n\n".join(paragraphs)
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    cls = settings_class(function)
    epilog = options.epilog(cls, settings.fields if settings else ()) if cls else None
    app.command(name, epilog=epilog, context_settings={"help_option_names": ["-h", "--help"]})(call)
    return typer.main.get_command(app)


@dataclasses.dataclass
class _Settings:
    """The settings class of a function, the parameter that takes it, and its fields that are options."""

    parameter: str
    cls: type[Any]
    fields: list[str] = dataclasses.field(default_factory=list)


def _parameters(function: Callable[..., Any], text: bool) -> tuple[dict[str, inspect.Parameter], _Settings | None]:
    """Return the parameters of the command by name, and the settings of the function."""
    found: dict[str, inspect.Parameter] = {}
    settings: _Settings | None = None

    def add(name: str, kind: Any, info: Any, default: Any = None) -> None:
        annotation = Annotated[kind, info]
        found[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)

    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        kind, help, limits = _annotation(parameter)
        if cls := next((each for each in (kind, *get_args(kind)) if dataclasses.is_dataclass(each)), None):
            settings = _Settings(parameter.name, cast(type, cls))
        elif parameter.name in ("config", "overrides"):
            add(parameter.name, *_shared(parameter.name, help))
        else:
            add(parameter.name, *_parameter(parameter, kind, help, limits, text))
    if settings:
        for field in dataclasses.fields(settings.cls):
            if field.name not in (*found, "output") and (option := _field(field)):
                add(field.name, *option)
                settings.fields.append(field.name)
        add("config", *_shared("config"))
        add("overrides", *_shared("overrides"))
    if signature.return_annotation is not None:
        add("as_json", bool, JSON, False)
    add("quiet", bool, QUIET, False)
    add("profile", str | None, PROFILE)
    return found, settings


def _annotation(parameter: inspect.Parameter) -> tuple[Any, str, dict[str, Any]]:
    """Return the type of a parameter, its help text and its limits."""
    if get_origin(parameter.annotation) is not Annotated:
        return parameter.annotation, "", {}
    kind, help, *limits = get_args(parameter.annotation)
    return kind, help, limits[0] if limits else {}


def _shared(name: str, help: str = "") -> tuple[Any, Any]:
    """Return the type and Typer's description of -c or --set."""
    if name == "overrides":
        return list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="one setting (dotted key); repeatable")
    help = help or "YAML settings, or the name of a profile"
    return Path | None, typer.Option("-c", "--config", metavar="FILE", help=help, parser=path)


def _parameter(
    parameter: inspect.Parameter, kind: Any, help: str, limits: dict[str, Any], text: bool
) -> tuple[Any, Any, Any]:
    """Return the type, Typer's description and the default of an argument or option."""
    members = [each for each in get_args(kind) if each is not type(None)] or [kind]
    several = next((each for each in (kind, *members) if get_origin(each) in (Sequence, list)), None)
    inner = get_args(several)[0] if several else (members[0] if get_origin(kind) in (Union, UnionType) else kind)
    has_default = parameter.default is not parameter.empty
    default = (None if several else parameter.default) if has_default else ...
    full: Any = list[inner] if several else inner  # type: ignore[valid-type]
    if default is None:
        full = full | None
    paths: dict[str, Any] = {"parser": path} if inner is Path else {}
    name = parameter.name.rstrip("_")
    if name == "workers":
        return int, WORKERS, default_workers()
    if name == "target":
        if inner is Path:
            paths["parser"] = _text_product if text else _product
        help = help or "path of the product" + "; - is standard output" * text
        return full, typer.Option("-o", "--output", metavar="OUT", help=help, **paths), default
    if parameter.kind is parameter.KEYWORD_ONLY:
        return full, typer.Option(f"--{name.replace('_', '-')}", help=help, **paths, **limits), default
    metavar = (name.removesuffix("s") if several else name).upper()
    return full, typer.Argument(metavar=metavar, help=help, **paths, **limits), default


def _field(field: "dataclasses.Field[Any]") -> tuple[Any, Any, Any] | None:
    """Return the type, Typer's description and the default of the option for a setting; None if it is no single value.

    The settings class itself checks the values.
    """
    info: Any = field.default
    members = [each for each in get_args(field.type) if each is not type(None)]
    is_choice = get_origin(field.type) is Literal
    kind = str if is_choice or str in members else next(iter(members), field.type)
    if kind not in (bool, int, float, str) or info.default_factory:
        return None
    name = field.name.replace("_", "-")
    flags = f"--{name}/--no-{name}" if info.default is True else f"--{name}"
    metavar = "|".join(map(str, members)) if is_choice else None
    default = "unset" if info.default is None else info.default
    help = info.description if kind is bool else f"{info.description} [default: {default}]"
    return kind | None, typer.Option(flags, metavar=metavar, help=help), None


def path(value: str) -> Path:
    """Return a path on the command line. The empty text is an error, which Path would take for the current folder."""
    if not value:
        raise typer.BadParameter("'' is not a path")
    return Path(value)


def _product(value: str) -> Path:
    """Return the path of -o. Raises UsageError if it is a device, a pipe or standard output."""
    if value == "-":
        raise typer.BadParameter("standard output takes one text only; allowed: a path")
    return files.require_replaceable(path(value))


def _text_product(value: str) -> Path:
    return files.STANDARD_OUTPUT if value == "-" else _product(value)


def set_environment(profile: str | None, quiet: bool) -> None:
    """Set what --profile and --quiet say, also for the processes that this one starts."""
    if profile:
        profiles.file(profile)
        os.environ[profiles.VARIABLE] = profile
        profiles.make_absolute()
    if quiet:
        os.environ[progress.QUIET] = "1"


@contextmanager
def _standard_input(values: dict[str, Any]) -> Iterator[None]:
    """Replace "-" among `prompts` and `sources` by standard input: its text, or a file with a copy of it."""
    if "-" in values.get("prompts", ()):
        text = _decoded(sys.stdin.buffer.read()).rstrip("\n")
        values["prompts"] = [text if prompt == "-" else prompt for prompt in values["prompts"]]
    if Path("-") not in values.get("sources", ()):
        yield
        return
    with files.temporary_folder("course-input") as folder:
        block = sys.stdin.buffer.read(files.CHUNK)
        copy = folder / ("standard-input.jsonl" if block[:1] == b"{" else "standard-input.txt")
        with copy.open("wb") as file:
            while block:
                file.write(block)
                block = sys.stdin.buffer.read(files.CHUNK)
        values["sources"] = [copy if source == Path("-") else source for source in values["sources"]]
        try:
            yield
        except CourseError as error:
            raise type(error)(str(error).replace(f"{folder}{os.sep}", "")) from error


def _decoded(content: bytes) -> str:
    with suppress(UnicodeDecodeError):
        return content.decode("utf8")
    raise CourseError("standard input: not UTF-8")
