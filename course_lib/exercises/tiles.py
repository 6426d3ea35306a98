"""The check of attention in tiles (FlashAttention, https://arxiv.org/abs/2205.14135), and how large its tensors are."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.language.words import tr


class _Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the largest result of an operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.numbers = max(self.numbers, result.numel())
        return result


def largest_tensor(function: Callable[..., Any], *arguments: Any) -> int:
    """Return of how many numbers the largest tensor consists that the function makes."""
    with _Largest() as seen:
        function(*arguments)
    return int(seen.numbers)


# Exercise 4a+.3: tiled
def check_tiled(tiled: Any) -> str | None:
    """Compare with attention as a whole, for lengths that a tile divides or not, and watch the sizes."""
    for seq, size, tile, scale in ((5, 4, 2, 1.0), (6, 4, 3, 1.0), (7, 4, 16, 1.0), (9, 8, 4, 60.0), (64, 8, 8, 1.0)):
        random = torch.Generator().manual_seed(seq)
        q, k, v = torch.randn(3, 2, 3, seq, size, generator=random, dtype=torch.float64)
        q = q * scale
        future = torch.ones(seq, seq).triu(1).bool()
        right = (q @ k.mT / size**0.5).masked_fill(future, -torch.inf).softmax(-1) @ v
        name = tr("with {seq} tokens in tiles of {tile}", seq=seq, tile=tile)
        found = tiled(q.clone(), k.clone(), v.clone(), tile)
        if not isinstance(found, torch.Tensor) or found.shape != right.shape:
            return tr("{name}, expected a tensor of the shape {shape}.", name=name, shape=[*right.shape])
        if not found.isfinite().all():
            return tr("{name}, some numbers are not finite: subtract the largest score before e^.", name=name)
        if (gap := (found - right).abs().max().item()) > 1e-9:
            return tr("{name}, the largest difference from attention as a whole is {gap:.1e}: when a larger "
                      "score comes, both sums so far shrink; and no token reads from later ones.",
                      name=name, gap=gap)  # fmt: skip
        numbers, most = largest_tensor(tiled, q, k, v, tile), q[..., 0].numel() * max(tile, size)
        if numbers > most:
            return tr("{name}, a tensor of {numbers} numbers is made; allowed: {most}, one tile of scores.",
                      name=name, numbers=numbers, most=most)  # fmt: skip
    return None
