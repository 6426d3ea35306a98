"""Optimizer groups with and without weight decay, the same for every trainer of the course."""

from collections.abc import Callable
from typing import Any

from torch import nn


def parameter_groups(model: nn.Module, decays: Callable[[str], bool], weight_decay: float) -> list[dict[str, Any]]:
    """Return two optimizer groups of trained parameters: those for which `decays(name)` is true, and the rest."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    return [
        {"params": [p for name, p in named if decays(name) == decayed], "weight_decay": weight_decay * decayed}
        for decayed in (True, False)
    ]
