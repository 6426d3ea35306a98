"""Model sizes that the memory planner needs, in the same form for all models. This module does not import torch."""

from dataclasses import dataclass

# Bytes per logit: the fp32 log-softmax and, at the start of the backward pass, two gradients of the same size.
LOGIT_BYTES = 12


@dataclass(frozen=True)
class Sizes:
    """The model sizes that the memory planner needs in addition to the common run settings."""

    trained: tuple[tuple[int, bool], ...]  # (elements, has weight decay) per trained parameter, in model order
    frozen: tuple[int, ...]  # elements of each parameter that is not trained
    activations: int  # stored in the forward pass of one micro-batch [bytes]
    logits: int  # logits with the loss and its gradients [bytes]
    block: int  # needed for one block's backward pass, after the logits are freed [bytes]
    flops_per_token: float  # floating-point operations to train on one token
    length: int  # tokens per sample
    # Casts of fp32 weights to 16 bits that the backward pass still needs after the forward pass [bytes]; 0 without
    # autocast.
    casts: int = 0
    # elements of each matrix that Muon updates instead of AdamW, by shape
    matrices: tuple[tuple[int, ...], ...] = ()

    @property
    def parameters(self) -> int:
        """Number of parameters, trained and frozen."""
        return sum(elements for elements, _ in self.trained) + sum(self.frozen)
