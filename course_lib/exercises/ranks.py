"""Ranks that are threads of this process, for checks of functions that talk to other ranks."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class Ranks:
    """Collective operations of ranks that are threads of this process, and the names of those that were called."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.called, self.errors = ranks, set[str](), list[Exception]()
        self.barrier, self.values = threading.Barrier(ranks, timeout=20), [None] * ranks
        # Lengths of what rank 0 reduced to one owner.
        self.sent = list[int]()

    def _stacked(self, name: str, rank: int, value: Any) -> Any:
        """Return what every rank brings to the operation `name`, [ranks, …]; all ranks have to call it."""
        import torch

        self.called.add(name)
        self.values[rank] = value.detach().clone()
        # Wait until every rank has stored its value.
        self.barrier.wait()
        stacked = torch.stack(list(self.values))  # type: ignore[arg-type]
        # Wait until every rank has read the values: the next operation replaces them.
        self.barrier.wait()
        return stacked

    def comm(self, rank: int) -> Any:
        """Return what a rank calls: the same operations as in the notebook."""
        return SimpleNamespace(
            rank=rank,
            ranks=self.ranks,
            reduce_scatter=lambda v: self._stacked("reduce_scatter", rank, v).mean(0).chunk(self.ranks)[rank],
            all_gather=lambda v: self._stacked("all_gather", rank, v).flatten(),
            all_sum=lambda v: self._stacked("all_sum", rank, v).sum(0),
        )

    def dist(self, rank: int) -> Any:
        """Return what stands for `torch.distributed` on a rank."""

        def reduce(tensor: Any, dst: int, async_op: bool = False) -> Any:
            if rank == 0:
                self.sent.append(tensor.numel())
            total = self._stacked("reduce", rank, tensor).sum(0)

            def wait() -> None:
                # torch.distributed promises the sum to the owner alone. NaN on the other ranks shows at once if an
                # answer uses the tensor there.
                tensor.copy_(total if rank == dst else total * float("nan"))

            return SimpleNamespace(wait=wait) if async_op else wait()

        return SimpleNamespace(get_rank=lambda: rank, get_world_size=lambda: self.ranks, reduce=reduce)

    def run(self, work: Callable[[int], None]) -> None:
        """Run `work(rank)` in a thread for each rank, and raise the first error of a rank."""

        def guarded(rank: int) -> None:
            try:
                work(rank)
            # The learner's function may raise any exception; the other ranks must not wait for this one.
            except Exception as error:
                self.errors.append(error)
                self.barrier.abort()

        threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(self.ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
