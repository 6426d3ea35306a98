"""Muon for the matrices of a GPT-2's blocks, with AdamW for all other weights, as one torch optimizer.

Muon replaces the momentum of a matrix by the nearest matrix with orthonormal rows or columns, approximately: five steps
of a Newton–Schulz iteration bring all singular values near 1. Sources: Jordan et al. 2024, Muon: An optimizer for
hidden layers in neural networks (https://kellerjordan.github.io/posts/muon/), and the repository KellerJordan/Muon.

transformers' GPT-2 stores a matrix as [in, out]. torch.optim.Muon, DeepSpeed's and the repository expect [out, in], so
they would scale the updates by the wrong side. Query, key and value are orthogonalized apart, although GPT-2 stores
them in one matrix. The momentum is a sum of gradients, in the repository a mean: the iteration removes the factor.
"""

from typing import Any

import torch
from torch import Tensor, nn

from course_lib.training.parameter_groups import is_matrix, parameter_groups
from course_lib.training.settings import OptimizerConfig

# Factors of the odd polynomial x → a·x + b·x³ + c·x⁵, chosen by Jordan et al. for its slope at 0.
A, B, C = 3.4445, -4.7750, 2.0315
ITERATIONS = 5


class Muon(torch.optim.AdamW):
    """Muon for the groups with "use_muon", AdamW for the others.

    `state[parameter]` holds "momentum", or AdamW's "exp_avg", "exp_avg_sq" and "step". The learning-rate schedule has
    one rate; a group's "lr" is that rate times the group's "relative_lr".
    """

    def __init__(self, groups: list[dict[str, Any]], wanted: OptimizerConfig, dtype: torch.dtype) -> None:
        """Take the groups of `muon_groups` and the format in which matrices are orthogonalized."""
        betas = (wanted.beta1, wanted.beta2)
        super().__init__(groups, wanted.lr.max, betas, wanted.epsilon, fused=wanted.fused)
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all parameters. The gradients of the matrices are freed."""
        for group in self.param_groups:
            if group["use_muon"]:
                self._update(group)
        # AdamW skips parameters without a gradient.
        return super().step(closure)

    def _update(self, group: dict[str, Any]) -> None:
        """Update the matrices of a group, which have one shape [in, out]."""
        matrices, momentum, rate = group["params"], group["momentum"], group["lr"]
        gradients = [matrix.grad for matrix in matrices]
        for matrix in matrices:
            if "momentum" not in self.state[matrix]:
                self.state[matrix]["momentum"] = torch.zeros_like(matrix)
        sums = [self.state[matrix]["momentum"] for matrix in matrices]
        torch._foreach_mul_(sums, momentum)
        torch._foreach_add_(sums, gradients)
        # Nesterov momentum
        updates = torch.stack(torch._foreach_add(gradients, sums, alpha=momentum))

        # [matrices, in, parts · out] → [parts · matrices, in, out], and back
        apart = torch.cat(updates.chunk(group["parts"], 2))
        updates = torch.cat(orthogonalized(apart, self.dtype).chunk(group["parts"]), 2)

        columns, rows = apart.shape[2], apart.shape[1]
        scale = max(1, columns / rows) ** 0.5
        torch._foreach_mul_(matrices, 1 - rate * group["weight_decay"])
        torch._foreach_add_(matrices, list(updates.unbind()), alpha=-rate * scale)
        for matrix in matrices:
            matrix.grad = None


def orthogonalized(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Return matrices [number, in, out, fp32] whose singular values are near 1, computed in `dtype`."""
    x: Tensor = matrices.to(dtype)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    # The products are smaller if the rows are the shorter side.
    is_tall = x.shape[1] > x.shape[2]
    if is_tall:
        x = x.mT
    for _ in range(ITERATIONS):
        products = x @ x.mT
        x = A * x + (B * products + C * products @ products) @ x
    if is_tall:
        x = x.mT
    return x.float()


def muon(model: nn.Module, wanted: OptimizerConfig, dtype: torch.dtype) -> Muon:
    """Return the optimizer of a GPT-2 that trains in `dtype`.

    Matrices are orthogonalized in bf16 if the training is in bf16, otherwise in fp32: fp16 would lose small gradients.
    """
    return Muon(muon_groups(model, wanted), wanted, dtype if dtype == torch.bfloat16 else torch.float32)


def muon_groups(model: nn.Module, wanted: OptimizerConfig) -> list[dict[str, Any]]:
    """Return the groups of matrices of one shape for Muon, then those of AdamW with and without weight decay."""
    matrices = dict[tuple[torch.Size, int], list[nn.Parameter]]()
    for name, parameter in model.named_parameters():
        if is_matrix(name, parameter.shape):
            # Query, key and value lie side by side in c_attn.
            parts = 3 if name.endswith("attn.c_attn.weight") else 1
            matrices.setdefault((parameter.shape, parts), []).append(parameter)
    groups: list[dict[str, Any]] = []
    relative = wanted.muon.lr / wanted.lr.max
    for (_, parts), alike in matrices.items():
        number = wanted.muon.together(alike[0].numel())
        for at in range(0, len(alike), number):
            groups.append(
                {
                    "params": alike[at : at + number],
                    "use_muon": True,
                    "parts": parts,
                    "lr": wanted.muon.lr,
                    "relative_lr": relative,
                    "momentum": wanted.muon.momentum,
                    "weight_decay": wanted.muon.weight_decay,
                }
            )
    by_muon = {parameter for group in groups for parameter in group["params"]}
    for group in parameter_groups(model, wanted.weight_decay):
        rest = [parameter for parameter in group["params"] if parameter not in by_muon]
        groups.append(group | {"params": rest, "use_muon": False, "relative_lr": 1.0})
    return groups
