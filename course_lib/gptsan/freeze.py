"""Frozen parameters in a GPTSAN model. Names must match exactly: the prefix of a name freezes nothing."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError, UsageError
from course_lib.gptsan.shape import EXTRA_POSITIONS

if TYPE_CHECKING:
    from torch import nn

    from course_lib.gptsan.configuration import GPTSanConfig
    from course_lib.gptsan.shape import ShapeConfig

# Value for model.ignore that freezes all parameters except the extra layers, the extra positions and the spout.
BASE = "base"
BLOCK = re.compile(r"model\.blocks\.(\d+)\.")
SPOUT = "model.spout."


def frozen_names(
    ignore: Path | str | None, spout_mode: str, shape: "GPTSanConfig | ShapeConfig", names: list[str]
) -> set[str]:
    """Return the names of the frozen parameters: those in model.ignore, plus the spout if spout.mode is none.

    `ignore` is the path to a JSON list of names, "base" for every parameter of the base model, or None to freeze
    nothing. `names` lists all parameters.

    Raises UsageError if the list contains a name that the model does not have, or if all parameters would be frozen.
    """
    if ignore is None:
        frozen = set()
    elif ignore == BASE:
        frozen = {name for name in names if not is_extra(name, shape)}
    else:
        assert isinstance(ignore, Path)
        frozen = read_ignore(ignore)
        if unknown := sorted(frozen - set(names)):
            raise UsageError(f"model.ignore: {ignore} names {unknown[0]}, which the model does not have")
    if spout_mode == "none":
        frozen |= {name for name in names if name.startswith(SPOUT)}
    if frozen >= set(names):
        raise UsageError(f"model.ignore: {ignore} leaves nothing to train with spout.mode {spout_mode}")
    return frozen


def is_extra(name: str, shape: "GPTSanConfig | ShapeConfig") -> bool:
    """Return whether a parameter belongs to an extra layer, the extra positions or the spout."""
    block = BLOCK.match(name)
    return name == EXTRA_POSITIONS or name.startswith(SPOUT) or bool(block and int(block[1]) >= shape.num_switch_layers)


def read_ignore(path: Path) -> set[str]:
    """Read the names from an ignore-params.json file. Raises CourseError if it is not a JSON list of names."""
    try:
        content = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        raise CourseError(f"model.ignore: {path}: not readable as JSON: {error}") from None
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        raise CourseError(f"model.ignore: {path}: expected a JSON list of parameter names")
    return set(content)


def freeze(model: "nn.Module", names: set[str]) -> None:
    """Disable gradients for the named parameters and enable them for all others.

    The model can then load a checkpoint that does not contain the named parameters.
    """
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in names)

    def tolerate(_module: object, keys: Any) -> None:
        keys.missing_keys[:] = [key for key in keys.missing_keys if key not in names]

    model.register_load_state_dict_post_hook(tolerate)  # type: ignore[no-untyped-call]


def digests(model: "nn.Module") -> dict[str, int]:
    """Return a digest of the bits in each frozen parameter, by name. Under ZeRO-3, it covers only this rank's shard.

    The digest is a weighted sum of 16-bit or 32-bit words, computed on the device that holds the parameter.
    """
    import torch

    sums = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            held = getattr(parameter, "ds_tensor", parameter).detach()
            bits = held.contiguous().view(torch.int16 if held.element_size() == 2 else torch.int32)
            weights = torch.arange(1, bits.numel() + 1, device=bits.device, dtype=torch.int64)
            sums[name] = int((bits.flatten() * weights).sum())
    return sums
