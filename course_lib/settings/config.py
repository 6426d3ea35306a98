"""Settings from dataclasses, YAML files, `key=value` overrides and the current profile.

A key has dots for nested keys: `model.recompute`. A section, such as `corpus.wikipedia`, is a part of a profile.

Each chapter declares its settings as a pydantic dataclass whose fields are created with `setting(default, help)`.
profiles.py finds the YAML files, yaml_values.py reads them and the overrides, and pydantic validates the values.
Other modules read settings only through this one.
"""

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from course_lib.errors import UsageError
from course_lib.language.words import tr, tr_noop
from course_lib.settings import profiles

# The modules that declare the sections of a profile, each section beside its dataclass. Their packages import this one,
# so they are imported by name at run time; only workspace/chapters.py does the same, for the products.
SECTION_MODULES = (
    "corpus.config", "japanese.config", "subword.config", "pretrain.config", "gptsan.config", "prefix.config",
    "serving.config", "training.settings",
)  # fmt: skip
# Every settings dataclass uses this: `@dataclass(frozen=True, config=STRICT)`. It refuses unknown keys, inf and nan.
# It is not pydantic's strict mode: `build` makes the types strict.
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
Settings = TypeVar("Settings")
# pydantic's messages by the type of the error, so that they are translated; it keeps their fields in the error's `ctx`.
EXPECTED = {
    "int_type": tr_noop("input should be a valid integer"),
    "float_type": tr_noop("input should be a valid number"),
    "bool_type": tr_noop("input should be a valid boolean"),
    "string_type": tr_noop("input should be a valid string"),
    "tuple_type": tr_noop("input should be a valid array"),
    "greater_than": tr_noop("input should be greater than {gt}"),
    "greater_than_equal": tr_noop("input should be greater than or equal to {ge}"),
    "less_than": tr_noop("input should be less than {lt}"),
    "less_than_equal": tr_noop("input should be less than or equal to {le}"),
    "literal_error": tr_noop("input should be one of {expected}"),
}


def setting(default: Any, help: str, **limits: Any) -> Any:
    """Define a setting, with a one-line help text that names the unit, and pydantic's limits, such as gt=0."""
    if isinstance(default, list | dict):
        return Field(default_factory=default.copy, description=help, **limits)
    return Field(default, description=help, **limits)


@dataclasses.dataclass(frozen=True)
class Section(Generic[Settings]):
    """A section of a profile, such as `corpus.wikipedia`: its name, and the dataclass of its settings."""

    name: str
    cls: type[Settings]

    def read(self, overrides: Sequence[str] = (), of: str | None = None) -> Settings:
        """Read and check the section in a profile; `key=value` overrides are applied last.

        `of` is the profile's name or path; None means the current one. Raises UsageError if a key or value is invalid.
        """
        path = profiles.profile_file(of)
        return build(self.cls, sections(path).get(self.name, {}), overrides, where=f"{path.name}: {self.name}")


@cache
def known_sections() -> dict[str, Section[Any]]:
    """Return every section that a profile may have, by its name."""
    modules = [import_module(f"course_lib.{name}") for name in SECTION_MODULES]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Section)]
    return {section.name: section for section in found}


def sections(path: Path) -> dict[str, dict[str, Any]]:
    """Return the sections that a profile's file and those that it extends set, by dotted name.

    Raises UsageError if there is no such chapter or section, or if it is no mapping.
    """
    known = known_sections()
    chapters = list(dict.fromkeys(name.split(".")[0] for name in known))
    found: dict[str, dict[str, Any]] = {}
    for chapter, inner in profiles.read_yaml(path).items():
        if chapter not in chapters:
            reason = tr("{key}: unknown key; allowed: {known}", key=chapter, known=", ".join(chapters))
            raise UsageError(f"{path.name}: {reason}")
        for name, values in _mapping(path, chapter, inner).items():
            section = f"{chapter}.{name}"
            if section not in known:
                message = tr_noop("{section}: unknown section; allowed: {known}")
                reason = tr(message, section=section, known=", ".join(known))
                raise UsageError(f"{path.name}: {reason}")
            found[section] = _mapping(path, section, values)
    return found


def _mapping(path: Path, key: str, value: Any) -> dict[str, Any]:
    """Return the value of a profile's chapter or section. Raises UsageError if it is neither a mapping nor empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        message = tr_noop("{key}: {value!r} is not allowed: expected `key: value` settings")
        raise UsageError(f"{path.name}: {tr(message, key=key, value=value)}")
    return value


def load(cls: type[Settings], file: str | Path, overrides: Sequence[str] = ()) -> Settings:
    """Read settings from a YAML file that `find_settings_file` finds; `key=value` overrides are applied last."""
    return build(cls, profiles.read_yaml(file), overrides, where=str(file))


def build(cls: type[Settings], values: dict[str, Any], overrides: Sequence[str] = (), where: str = "") -> Settings:
    """Build validated settings from nested mappings and `key=value` overrides, which are applied last.

    Raises UsageError if a key or value is invalid; `where` is the file or section that its message names.
    """
    try:
        if overrides:
            from course_lib.settings import yaml_values

            values = yaml_values.merged(values, overrides)
        # JSON mode is strict about types (no "3" for 3), but accepts a list for a tuple and a string for a Path.
        return TypeAdapter(cls).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        reason = _explain(cls, error)
    except (ValueError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())
    raise UsageError(f"{where}: {reason}" if where else reason)


def _explain(cls: type, error: ValidationError) -> str:
    """Return the first problem in a pydantic error as one line: the key, the value and what is allowed."""
    problem = error.errors()[0]
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path) or "settings"
    if problem["type"] == "unexpected_keyword_argument":
        for part in path[:-1]:
            cls = next(typing.cast(type, field.type) for field in dataclasses.fields(cls) if field.name == part)
        known = ", ".join(field.name for field in dataclasses.fields(cls))
        return tr("{key}: unknown key; allowed: {known}", key=key, known=known)
    message = problem["msg"].removeprefix("Value error, ")
    if not path or (problem["type"] == "value_error" and isinstance(problem["input"], dict)):
        # The message of a check on several keys already names them.
        return message
    # pydantic joins the choices with "or".
    fields = {name: str(value).replace(" or ", ", ") for name, value in problem.get("ctx", {}).items()}
    expected = EXPECTED.get(problem["type"])
    message = tr(expected, **fields) if expected else message[0].lower() + message[1:]
    return tr("{key}: {value!r} is not allowed: {message}", key=key, value=problem["input"], message=message)


def to_dict(settings: Any) -> dict[str, Any]:
    """Convert settings to plain JSON values for manifests and YAML."""
    return typing.cast(dict[str, Any], TypeAdapter(type(settings)).dump_python(settings, mode="json"))


def to_yaml(settings: Any) -> str:
    """Convert settings to YAML text that `load` reads back as an equal object."""
    from course_lib.settings import yaml_values

    return yaml_values.dump(to_dict(settings))


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings into dotted keys: {"lr": {"max": 1}} → {"lr.max": 1}."""
    flattened: dict[str, Any] = {}
    for key, value in values.items():
        flattened |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flattened


def changed(settings: Any) -> dict[str, Any]:
    """Return the settings that differ from the defaults of their class, by dotted key."""
    values, default = flat(to_dict(settings)), flat(to_dict(type(settings)()))
    return {key: value for key, value in values.items() if key not in default or default[key] != value}


class Described(NamedTuple):
    """A setting as `--help` lists it, with the dataclass that has its field."""

    key: str
    kind: str
    default: str
    help: str
    cls: type


def describe(cls: type, prefix: str = "") -> list[Described]:
    """Return every setting of a dataclass, with dotted keys, for `--help` and the tables of keys."""
    rows = []
    # List the fields that a class adds before those that it inherits.
    added = inspect.get_annotations(cls)
    for field in sorted(dataclasses.fields(cls), key=lambda field: field.name not in added):
        key = prefix + field.name
        if dataclasses.is_dataclass(field.type):
            rows += describe(typing.cast(type, field.type), key + ".")
            continue
        info: Any = field.default
        default = info.default_factory() if info.default_factory else info.default
        shown = json.dumps(default, ensure_ascii=False, default=str)
        declaring = next(each for each in cls.__mro__ if field.name in inspect.get_annotations(each))
        rows.append(Described(key, _type_name(field.type), shown, info.description, declaring))
    return rows


def _type_name(kind: Any) -> str:
    """Return a type as help text, such as `int`, `a | b` for choices, or `list of str`."""
    origin, members = get_origin(kind), get_args(kind)
    if origin is typing.Literal:
        return " | ".join(map(str, members))
    if origin in (Union, types.UnionType):
        return " or ".join("unset" if member is type(None) else _type_name(member) for member in members)
    if origin in (list, tuple):
        return "list of " + _type_name(members[0])
    return "mapping" if origin is dict else kind.__name__
