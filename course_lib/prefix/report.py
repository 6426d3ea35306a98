"""Parameter counts of a prefix."""

from dataclasses import asdict, dataclass

import torch

from course_lib.generation.prefix_cache import Shape
from course_lib.language.words import tr
from course_lib.prefix.encoder import PrefixEncoder


@dataclass(frozen=True)
class Counts:
    """Parameter counts."""

    trained: int  # includes the MLP, if there is one
    deployed: int  # keys and values at all positions
    base: int

    def summary(self) -> str:
        """Return the counts and their shares of the base model's parameters as one line."""
        shares = {"trained_share": self.trained / self.base, "deployed_share": self.deployed / self.base}
        return tr(
            "trained {trained:,} ({trained_share:.2%} of the base's {base:,}), "
            "deployed {deployed:,} ({deployed_share:.2%})",
            **asdict(self),
            **shares,
        )


def count(
    shape: Shape, base_parameters: int, length: int, input_dim: int, hidden_dim: int, reparameterize: bool = True
) -> Counts:
    """Return the parameter counts for a PrefixEncoder with these arguments on a base of this shape and size."""
    with torch.device("meta"):
        encoder = PrefixEncoder(length, shape.width, input_dim, hidden_dim, reparameterize=reparameterize)
    return Counts(sum(weight.numel() for weight in encoder.parameters()), length * shape.width, base_parameters)
