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
        self.sent = list[int]()  # lengths of what rank 0 reduced to one owner

    def _all(self, name: str, rank: int, value: Any) -> Any:
        import torch

        self.called.add(name)
        self.values[rank] = value.detach().clone()
        self.barrier.wait()
        together = torch.stack(list(self.values))  # type: ignore[arg-type]
        self.barrier.wait()
        return together

    def comm(self, rank: int) -> Any:
        """Return what a rank calls: the same operations as in the notebook."""
        return SimpleNamespace(
            rank=rank,
            ranks=self.ranks,
            reduce_scatter=lambda v: self._all("reduce_scatter", rank, v).mean(0).chunk(self.ranks)[rank],
            all_gather=lambda v: self._all("all_gather", rank, v).flatten(),
            all_sum=lambda v: self._all("all_sum", rank, v).sum(0),
        )

    def dist(self, rank: int) -> Any:
        """Return what stands for `torch.distributed` on a rank."""

        def reduce(tensor: Any, dst: int, async_op: bool = False) -> Any:
            if rank == 0:
                self.sent.append(tensor.numel())
            total = self._all("reduce", rank, tensor).sum(0)

            def wait() -> None:
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
