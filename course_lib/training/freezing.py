"""Frozen parameters: switch off their gradients, and check that training leaves every bit of them as it was."""

from typing import Any

import torch
from torch import nn

from course_lib.errors import CourseError


def freeze(model: nn.Module, names: set[str]) -> None:
    """Disable gradients for the named parameters, which checkpoints may then lack, and enable them for all others."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in names)

    def tolerate(_module: object, keys: Any) -> None:
        keys.missing_keys[:] = [key for key in keys.missing_keys if key not in names]

    model.register_load_state_dict_post_hook(tolerate)  # type: ignore[no-untyped-call]


def digests(model: nn.Module) -> dict[str, int]:
    """Return a weighted sum of the words of each frozen parameter by name; under ZeRO-3, those of this rank's shard."""
    sums = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            weight = getattr(parameter, "ds_tensor", parameter).detach()
            bits = weight.contiguous().view(torch.int16 if weight.element_size() == 2 else torch.int32)
            factors = torch.arange(1, bits.numel() + 1, device=bits.device, dtype=torch.int64)
            sums[name] = int((bits.flatten() * factors).sum())
    return sums


def require_unchanged(model: nn.Module, before: dict[str, int]) -> None:
    """Raise CourseError if a frozen parameter no longer has the digest in `before`."""
    after = digests(model)
    if changed := sorted(name for name, digest in before.items() if after[name] != digest):
        raise CourseError(
            f"{changed[0]}: a frozen parameter that has changed since training began; no checkpoint is saved"
        )
