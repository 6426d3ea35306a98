"""YAML values and `key=value` overrides, read and written with OmegaConf.

This module is separate from config.py because importing OmegaConf uses 5 MB of memory.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from course_lib.errors import UsageError

# Replaces `${` while an override is parsed. It is a Unicode noncharacter, which does not occur in text.
PLAIN = "\ufdd0"


def _no_environment(name: str, *_: Any) -> None:
    raise ValueError(f"${{oc.env:{name}}} is not allowed; write the value, or set it with --set")


# Settings are copied into runs and products. A settings file from someone else must not copy environment variables
# from this machine, because they may contain secrets.
try:
    OmegaConf.register_resolver("oc.env", _no_environment, replace=True)
# OmegaConf before 2.4, such as Colab's, has another function for it.
except TypeError:
    OmegaConf.register_new_resolver("oc.env", _no_environment, replace=True)


def read(path: Path, base: Callable[[Any, Path], Path]) -> tuple[Any, tuple[Path, ...]]:
    """Read a YAML file as plain Python values.

    `${key}` is replaced by the value of another key, and `${here}` by the absolute path of the file's folder.

    If the file has the key `extends`, its values are merged over those of the file that it names: mappings key by key,
    everything else replaces what was there. That file may extend another one.

    Args:
        path: the file.
        base: returns the file for a value of `extends` in a given file.

    Returns:
        The values without `extends`, and the files that they came from, `path` first.

    Raises:
        UsageError: naming the file, if one cannot be read, contains `${oc.env:NAME}`, or extends itself.
    """
    contents: dict[Path, Any] = {}
    following: Path | None = path
    while following is not None:
        if following in contents:
            raise UsageError(f"{path}: extends: {following} extends itself")
        content = contents[following] = _load(following)
        named = content.pop("extends", None) if OmegaConf.is_dict(content) else None
        following = None if named is None else base(named, following)
    try:
        whole = OmegaConf.merge(*reversed(contents.values())) if len(contents) > 1 else contents[path]
        return OmegaConf.to_container(whole, resolve=True), tuple(contents)
    except (YAMLError, OmegaConfBaseException) as error:
        raise UsageError(f"{path}: not readable as YAML: {_one_line(error)}") from error


def _load(path: Path) -> Any:
    folder = _escape(str(path.absolute().parent))
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
        return OmegaConf.create(_strings(content, lambda text: text.replace("${here}", folder)))
    except (YAMLError, OmegaConfBaseException, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{path}: not readable as YAML: {_one_line(error)}") from error


def merged(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Apply `section.key=value` overrides to the values, in order.

    Raises UsageError if an override is malformed, and ValueError if the overrides do not match the values, such as a
    key below a number.
    """
    changes = [_parse(override) for override in overrides]
    try:
        result = OmegaConf.to_container(OmegaConf.merge(_escape(values), *changes), resolve=True)
    except (OmegaConfBaseException, YAMLError) as error:
        raise ValueError(_one_line(error)) from None
    return cast(dict[str, Any], result)


def dump(values: dict[str, Any]) -> str:
    """Convert the values to YAML that `read` turns back into the same values."""
    return str(OmegaConf.to_yaml(OmegaConf.create(_escape(values))))


def _parse(override: str) -> Any:
    """Parse one `section.key=value` override. The value is taken literally: `${` in it is ordinary text.

    Raises UsageError naming the override if it is malformed.
    """
    key, equals, _value = override.partition("=")
    if not equals or not all(part.strip() for part in key.split(".")):
        raise UsageError(f"--set {override!r}: expected section.key=value")
    try:
        marked = OmegaConf.to_container(OmegaConf.from_dotlist([override.replace("${", PLAIN)]))
        return OmegaConf.create(_escape(_strings(marked, lambda text: text.replace(PLAIN, "${"))))
    except (OmegaConfBaseException, YAMLError, ValueError, IndexError) as error:
        raise UsageError(f"--set {override!r}: expected section.key=value: {_one_line(error)}") from None


def _strings(value: Any, change: Callable[[str], str]) -> Any:
    """Apply a function to the texts in nested mappings and lists."""
    if isinstance(value, dict):
        return {key: _strings(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_strings(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def _one_line(error: Exception) -> str:
    """Return the message of an OmegaConf or YAML error as one line, with the key if the error has one."""
    if isinstance(error, OmegaConfBaseException) and error.full_key:
        return f"{error.full_key}: {str(error).splitlines()[0]}"
    return " ".join(str(error).split())


def _escape(value: Any) -> Any:
    """Escape every `${` in the values, so that OmegaConf reads it back as text."""
    return _strings(value, lambda text: re.sub(r"(\\*)\$\{", r"\1\1\\${", text))
