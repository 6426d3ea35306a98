"""What an optimizer does with a parameter, by its name: the same in all trainers and in the memory planner."""

from collections.abc import Sequence
from typing import Any


def decays(name: str) -> bool:
    """Return whether weight decay applies to the parameter called `name`: to all except biases and norms.

    Norms are called ln_1, ln_2 and ln_f in GPT-2, and …norm in GPT-NeoX and GPTSAN. The tanreinama/GPTSAN code also
    decays the norms, because its exclusion pattern does not match their names.
    """
    return not name.endswith("bias") and ".ln_" not in name and "norm." not in name


def is_matrix(name: str, shape: Sequence[int]) -> bool:
    """Return whether a GPT-2's parameter is a matrix of a block, `transformer.h.N.….weight`, which Muon updates."""
    return ".h." in name and len(shape) == 2


def parameter_groups(model: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Return two optimizer groups of a module's trained parameters: with weight decay (see `decays`), and the rest."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    return [
        {"params": [p for name, p in named if decays(name) == decayed], "weight_decay": weight_decay * decayed}
        for decayed in (True, False)
    ]
