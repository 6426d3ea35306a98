"""What commands print: the result of their function as text, or as JSON with --json.

The text of a result is what its method `summary` returns, or else str. Several results are several lines. A result
whose property `failure` is not empty ends the command with that message and exit code 1.
"""

import dataclasses
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from course_lib.errors import QUIET, CourseError
from course_lib.files import STANDARD_OUTPUT


@dataclasses.dataclass
class Shown:
    """A result with its text: `value` is what --json prints."""

    value: Any
    text: str
    failure: str = ""


def show(result: Any, target: Path | None = None, as_json: bool = False) -> None:
    """Print the result of a command. It goes to standard error if the product is on standard output."""
    stream = sys.stderr if target == STANDARD_OUTPUT else sys.stdout
    if as_json:
        print(json.dumps(plain(result), ensure_ascii=False, indent=1), file=stream)
    elif result is not None and (shown := text(result)) and not (stream is sys.stderr and os.environ.get(QUIET)):
        ends = target in (None, STANDARD_OUTPUT) or str(target) in shown
        print(shown if ends else f"{shown} → {target}", file=stream)
    if failure := getattr(result, "failure", ""):
        raise CourseError(failure)


def text(result: Any) -> str:
    """Return a result as lines for the terminal; of a dictionary, the numbers: `documents 192, examples 512`."""
    if isinstance(result, list):
        return "\n".join(map(text, result))
    if isinstance(result, Shown):
        return result.text
    if isinstance(result, dict):
        sizes = {name: len(value) if isinstance(value, dict) else value for name, value in result.items()}
        shown = {name: size for name, size in sizes.items() if isinstance(size, int | float) and size}
        return ", ".join(f"{name.replace('_', ' ')} {round(size, 3):,}" for name, size in shown.items())
    return str(result.summary() if hasattr(result, "summary") else result)


def plain(value: Any) -> Any:
    """Return a result as JSON values. NaN and infinity, which JSON does not have, become null."""
    if isinstance(value, Shown):
        return plain(value.value)
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)
