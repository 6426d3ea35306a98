"""Frozen parameters in a GPTSAN model. Names must match exactly: the prefix of a name freezes nothing."""

import json
import re
from pathlib import Path

from course_lib.errors import CourseError, UsageError
from course_lib.gptsan.parameters import parameter_elements
from course_lib.gptsan.shape import EXTRA_POSITIONS, GPTSanShape

# Value for model.ignore that freezes all parameters except the extra layers, the extra positions and the spout.
BASE = "base"
BLOCK = re.compile(r"model\.blocks\.(\d+)\.")
SPOUT = "model.spout."


def frozen_names(ignore: Path | str | None, spout_mode: str, shape: GPTSanShape) -> set[str]:
    """Return the names of the frozen parameters: those in model.ignore, plus the spout if spout.mode is none.

    `ignore` is the path to a JSON list of names, "base" for every parameter of the base model, or None to freeze
    nothing.
    """
    names, frozen = parameter_elements(shape).keys(), set[str]()
    if ignore == BASE:
        frozen = {name for name in names if not is_extra(name, shape)}
    elif ignore is not None:
        frozen = read_ignore(Path(ignore))
        if unknown := sorted(frozen - names):
            raise UsageError(f"model.ignore: {ignore} names {unknown[0]}, which the model does not have")
    if spout_mode == "none":
        frozen |= {name for name in names if name.startswith(SPOUT)}
    if frozen >= names:
        raise UsageError(f"model.ignore: {ignore} leaves nothing to train with spout.mode {spout_mode}")
    return frozen


def is_extra(name: str, shape: GPTSanShape) -> bool:
    """Return whether a parameter belongs to an extra layer, the extra positions or the spout."""
    block = BLOCK.match(name)
    return name == EXTRA_POSITIONS or name.startswith(SPOUT) or bool(block and int(block[1]) >= shape.num_switch_layers)


def read_ignore(path: Path) -> set[str]:
    """Read the names from an ignore-params.json file."""
    try:
        content = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        raise CourseError(f"model.ignore: {path}: not readable as JSON: {error}") from None
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        raise CourseError(f"model.ignore: {path}: expected a JSON list of parameter names")
    return set(content)
