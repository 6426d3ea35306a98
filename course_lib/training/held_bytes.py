"""How many bytes of tensors are alive at once: what a rank holds of its gradients, or of gathered weights."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class HeldBytes:
    """Counts the tensors that it sees for as long as their storage lives; `most` is the most [bytes] so far."""

    def __init__(self) -> None:
        self.most = 0
        self._living = dict[Any, int]()  # the bytes of each storage, of which tensors may be views

    def see(self, tensor: Tensor) -> None:
        """Count a tensor until its storage is freed. As a hook of a tensor it sees the gradient."""
        self._living = {storage: size for storage, size in self._living.items() if not storage.expired()}
        storage = tensor.untyped_storage()
        self._living[StorageWeakRef(storage)] = storage.nbytes()  # type: ignore[no-untyped-call]
        self.most = max(self.most, sum(self._living.values()))

    def arguments(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same as `function`, and counts the tensor that it is given first."""

        def watched(tensor: Tensor, *more: Any, **named: Any) -> Any:
            self.see(tensor)
            return function(tensor, *more, **named)

        return watched

    def results(self, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """Return a function that does the same as `function`, and counts the tensor that it returns."""

        def watched(tensor: Tensor) -> Tensor:
            result = function(tensor)
            self.see(result)
            return result

        return watched
