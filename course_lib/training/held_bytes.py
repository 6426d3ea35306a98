"""How many bytes of tensors are alive at once: what a rank holds of its gradients, or of gathered weights."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class HeldBytes:
    """Counts the tensors that it sees for as long as their storage lives; `most` is the most [bytes] so far."""

    def __init__(self) -> None:
        self.most = 0
        # a StorageWeakRef, which has no types, and the size of each tensor
        self._living = list[tuple[Any, int]]()

    def see(self, tensor: Tensor) -> None:
        """Count a tensor until its storage is freed. As a hook of a tensor it sees the gradient."""
        self._living = [(storage, size) for storage, size in self._living if not storage.expired()]
        self._living.append((StorageWeakRef(tensor.untyped_storage()), tensor.nbytes))  # type: ignore[no-untyped-call]
        self.most = max(self.most, sum(size for _, size in self._living))

    def results(self, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """Return the function, whose results are counted."""

        def watched(tensor: Tensor) -> Tensor:
            result = function(tensor)
            self.see(result)
            return result

        return watched
