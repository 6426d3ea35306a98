"""What a prefix costs: parameters trained, parameters deployed, and their share of the frozen model's."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from course_lib.prefix import base
from course_lib.prefix.cache import Shape


@dataclass(frozen=True)
class Counts:
    """Parameters. `trained` with the MLP, if there is one; `deployed` are the keys and values of all positions."""

    trained: int
    deployed: int
    base: int

    def summary(self) -> str:
        """One line with shares of the base."""
        return (
            f"trained {self.trained:,} ({self.trained / self.base:.2%} of the base's {self.base:,}), "
            f"deployed {self.deployed:,} ({self.deployed / self.base:.2%})"
        )


def count(
    shape: Shape, base_parameters: int, length: int, input_dim: int, hidden_dim: int, reparameterize: bool = True
) -> Counts:
    """The parameters of a prefix of `length` positions: those of PrefixEncoder, written out."""
    deployed = length * shape.width
    inner = length * input_dim + (input_dim + 1) * hidden_dim + (hidden_dim + 1) * shape.width
    return Counts(inner if reparameterize else deployed, deployed, base_parameters)


def base_parameters(folder: Path) -> int:
    """The parameters of a model folder, by its config.json alone: no weight is read. Tied weights count once."""
    config = base.read_config(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(weight.numel() for weight in model.parameters())
