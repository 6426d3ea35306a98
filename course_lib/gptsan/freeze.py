"""Which parameters of a GPTSAN are trained. Names are matched exactly: a prefix of a name freezes nothing."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from course_lib.errors import CourseError, UsageError

if TYPE_CHECKING:
    from torch import nn

BASE = "base"  # model.ignore: all but the extra layers, their positions and the spout
BLOCK = re.compile(r"model\.blocks\.(\d+)\.")
EXTRA_POSITIONS, SPOUT = "model.extra_position_embeddings.weight", "model.spout."


class Shape(Protocol):
    """A GPTSanConfig, or the ShapeConfig of a new one."""

    @property
    def num_switch_layers(self) -> int:
        """Layers below the extra ones."""


def frozen_names(ignore: Path | str | None, spout_mode: str, shape: Shape, names: list[str]) -> set[str]:
    """Those of a model's parameter `names` that stay: model.ignore, and the spout where nothing feeds it.

    Raises UsageError for a name in the list that the model does not have, and if nothing is left to train.
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


def is_extra(name: str, shape: Shape) -> bool:
    """Whether a parameter belongs to an extra layer, to the extra positions or to the spout."""
    block = BLOCK.match(name)
    return name == EXTRA_POSITIONS or name.startswith(SPOUT) or bool(block and int(block[1]) >= shape.num_switch_layers)


def decays(name: str) -> bool:
    """Whether weight decay applies: not to biases and norms. (The original decays its norms, whose names its pattern misses.)"""
    return not name.endswith("bias") and ".norm." not in name


def read_ignore(path: Path) -> set[str]:
    """The names in an ignore-params.json. Raises CourseError for anything but a list of names."""
    try:
        content = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        raise CourseError(f"model.ignore: {path}: not readable as JSON: {error}") from None
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        raise CourseError(f"model.ignore: {path}: expected a JSON list of parameter names")
    return set(content)


def freeze(model: "nn.Module", names: set[str]) -> None:
    """Takes the gradients from the named parameters, and lets a checkpoint without them be loaded."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in names)

    def tolerate(_module: object, keys: Any) -> None:
        keys.missing_keys[:] = [key for key in keys.missing_keys if key not in names]

    model.register_load_state_dict_post_hook(tolerate)  # type: ignore[no-untyped-call]


def digests(model: "nn.Module") -> dict[str, int]:
    """A digest of the bits of each frozen parameter (of this rank's shard under ZeRO-3), computed where it lies."""
    import torch

    found = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            held = getattr(parameter, "ds_tensor", parameter).detach()
            bits = held.contiguous().view(torch.int16 if held.element_size() == 2 else torch.int32)
            weights = torch.arange(1, bits.numel() + 1, device=bits.device, dtype=torch.int64)
            found[name] = int((bits.flatten() * weights).sum())
    return found
