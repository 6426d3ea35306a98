"""YAML files and `key=value` overrides, read and written with PyYAML.

Numbers, true, false and null are those of YAML 1.2: `on`, 1:30 and 2026-11-01 are text, and 1e-4 is a number.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from course_lib.errors import UsageError, one_line
from course_lib.language.words import mark, tr

SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(0|[1-9][0-9]*)",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping, whose keys must be different texts."""
        keys = [self.construct_object(key) for key, _ in node.value]
        for at, key in enumerate(keys):
            if not isinstance(key, str) or key in keys[:at]:
                problem = f"duplicate key {key}" if isinstance(key, str) else f"key {key!r} is not text"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.value[at][0].start_mark)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    pass


for _class in (_Loader, _Dumper):
    _class.yaml_implicit_resolvers = {}
    for _kind, _pattern in SCALARS.items():
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"^(?:{_pattern})$"), None)


def load(path: Path) -> Any:
    """Read a YAML file as plain Python values, in which `${here}` stands for the absolute path of the file's folder."""
    try:
        content = yaml.load(path.read_text(encoding="utf8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{path}: not readable as YAML: {one_line(error)}") from error
    return _with_folder({} if content is None else content, str(path.absolute().parent))


def _with_folder(value: Any, folder: str) -> Any:
    if isinstance(value, dict):
        return {key: _with_folder(inner, folder) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_folder(inner, folder) for inner in value]
    return value.replace("${here}", folder) if isinstance(value, str) else value


def over(below: Any, above: Any) -> Any:
    """Return `above`, merged key by key over `below` where both are mappings."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: over(below.get(key), value) for key, value in above.items()}


def merged(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Apply `section.key=value` overrides to the values, in order. Raises UsageError if an override is malformed."""
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not all(part.strip() for part in key.split(".")):
            raise UsageError(tr("--set {override!r}: expected section.key=value", override=override))
        try:
            change = yaml.load(text, _Loader)
        except yaml.YAMLError as error:
            message = mark("--set {override!r}: expected section.key=value: {error}")
            raise UsageError(tr(message, override=override, error=one_line(error))) from None
        for part in reversed(key.split(".")):
            change = {part: change}
        values = over(values, change)
    return values


def dump(values: dict[str, Any]) -> str:
    """Convert the values to YAML that `load` turns back into the same values."""
    return yaml.dump(values, Dumper=_Dumper, allow_unicode=True, sort_keys=False)
