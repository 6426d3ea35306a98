"""YAML files and `key=value` overrides, read and written with PyYAML.

Numbers, true, false and null are those of YAML 1.2: `on`, 1:30 and 2026-11-01 are text, and 1e-4 is a number.
"""

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from course_lib.errors import UsageError, one_line
from course_lib.language.words import tr, tr_noop

# Values that a text may stand for. Aliases of aliases can make billions of a text of some hundred bytes.
MOST = 100_000
# The count of a node while its parts are counted: no node stands for zero values.
BEING_COUNTED = 0
SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(0|[1-9][0-9]*)",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping, whose keys must be different texts."""
        keys = set[str]()
        for key_node, _ in node.value:
            key = self.construct_object(key_node)
            if not isinstance(key, str) or key in keys:
                problem = f"duplicate key {key}" if isinstance(key, str) else f"key {key!r} is not text"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            keys.add(key)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    pass


for _class in (_Loader, _Dumper):
    _class.yaml_implicit_resolvers = {}
    for _kind, _pattern in SCALARS.items():
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"^(?:{_pattern})$"), None)


def parse(text: str) -> Any:
    """Return a YAML text as plain Python values. Raises yaml.YAMLError if it is not one, or endless, or too large."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None
    # PyYAML's errors for a value that its own tag does not allow, such as `!!int x`
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise yaml.YAMLError(f"a value that its tag does not allow: {one_line(error)}") from None


def _count(node: yaml.Node, counts: dict[int, int]) -> int:
    """Return how many values a node stands for, its aliases included; `counts` has the nodes that are counted, by id.

    Raises yaml.YAMLError if a node is part of itself, or stands for more than MOST values.
    """
    if counts.get(id(node)) == BEING_COUNTED:
        problem = "an alias of a value that it is part of"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    if id(node) not in counts:
        counts[id(node)] = BEING_COUNTED
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            parts = node.value
        elif isinstance(node, yaml.MappingNode):
            parts = list(chain.from_iterable(node.value))
        counts[id(node)] = 1 + sum(_count(part, counts) for part in parts)
    if counts[id(node)] > MOST:
        raise yaml.MarkedYAMLError(problem=f"more than {MOST:,} values", problem_mark=node.start_mark)
    return counts[id(node)]


def load(path: Path) -> Any:
    """Read a YAML file as plain Python values, in which `${here}` stands for the absolute path of the file's folder."""
    try:
        content = parse(path.read_text(encoding="utf8"))
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
    """Apply `key=value` overrides to the values, in order. A key has dots for nested keys: `model.recompute=full`.

    Raises UsageError if an override is malformed.
    """
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not all(part.strip() for part in key.split(".")):
            raise UsageError(tr("--set {override!r}: expected section.key=value", override=override))
        try:
            change = parse(text)
        except yaml.YAMLError as error:
            message = tr_noop("--set {override!r}: expected section.key=value: {error}")
            raise UsageError(tr(message, override=override, error=one_line(error))) from None
        for part in reversed(key.split(".")):
            change = {part: change}
        values = over(values, change)
    return values


def dump(values: dict[str, Any]) -> str:
    """Convert the values to YAML that `load` turns back into the same values."""
    return yaml.dump(values, Dumper=_Dumper, allow_unicode=True, sort_keys=False)
