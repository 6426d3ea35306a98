"""What the memory planner needs to know of a model, of any kind; no torch."""

from dataclasses import dataclass

# Bytes per logit: the fp32 log-softmax and, when the backward pass begins, two gradients of the same size.
LOGIT_BYTES = 12


@dataclass(frozen=True)
class Sizes:
    """The quantities of a model that the memory planner needs, besides the common settings of a run."""

    trained: tuple[tuple[int, bool], ...]  # (elements, whether decayed) per trained parameter, in the model's order
    frozen: tuple[int, ...]  # elements of each parameter that is not trained
    activations: int  # kept by the forward pass of one micro-batch [bytes]
    logits: int  # logits with the loss and its gradients [bytes]
    block: int  # needed by one block in its backward pass, when the logits are already freed [bytes]
    flops_per_token: float  # floating-point operations to train on one token
    length: int  # tokens per sample

    @property
    def parameters(self) -> int:
        """Number of parameters, trained and frozen."""
        return sum(elements for elements, _ in self.trained) + sum(self.frozen)
