"""Frozen parameters of a GPTSAN model. Names are compared as a whole: a prefix of a name freezes nothing."""

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

# Value of model.ignore that freezes all parameters except the extra layers, the extra positions and the spout.
BASE = "base"
BLOCK = re.compile(r"model\.blocks\.(\d+)\.")
SPOUT = "model.spout."


def frozen_names(
    ignore: Path | str | None, spout_mode: str, shape: "GPTSanConfig | ShapeConfig", names: list[str]
) -> set[str]:
    """Return the names of the frozen parameters: those of model.ignore, and the spout's if spout.mode is none.

    `ignore` is the path of a JSON list of names, `base`, or None to freeze nothing; `names` are all parameters.

    Raises:
        UsageError: The list has a name that the model does not have, or all parameters are frozen.
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
    """Return whether a parameter belongs to an extra layer, to the extra positions or to the spout."""
    block = BLOCK.match(name)
    return name == EXTRA_POSITIONS or name.startswith(SPOUT) or bool(block and int(block[1]) >= shape.num_switch_layers)


def decays(name: str) -> bool:
    """Return whether weight decay applies to a parameter: to all except biases and norms.

    tanreinama/GPTSAN also decays the norms, because its exclusion pattern does not match their names.
    """
    return not name.endswith("bias") and ".norm." not in name


def read_ignore(path: Path) -> set[str]:
    """Read the names in an ignore-params.json. Raises CourseError if the file is not a JSON list of names."""
    try:
        content = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        raise CourseError(f"model.ignore: {path}: not readable as JSON: {error}") from None
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        raise CourseError(f"model.ignore: {path}: expected a JSON list of parameter names")
    return set(content)


def freeze(model: "nn.Module", names: set[str]) -> None:
    """Turn off gradients for the named parameters and on for all others.

    A checkpoint that lacks the named parameters can then be loaded into the model without an error.
    """
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in names)

    def tolerate(_module: object, keys: Any) -> None:
        keys.missing_keys[:] = [key for key in keys.missing_keys if key not in names]

    model.register_load_state_dict_post_hook(tolerate)  # type: ignore[no-untyped-call]


def digests(model: "nn.Module") -> dict[str, int]:
    """Return a digest of the bits of each frozen parameter, by name; under ZeRO-3, of this rank's shard.

    The digest is a weighted sum of the 16-bit or 32-bit words, computed on the parameter's device.
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
