"""Where a model computes: the device and the number of CPU threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Parameters up to which more than one CPU thread makes a model slower: with 2.3 million parameters on two cores, 40
# training steps took 2 s of CPU time with one thread and 14 s with two.
SMALL = 10_000_000


def device(choice: str = "auto") -> str:
    """Return the device for this process: `cuda` if there is a GPU and `choice` is not `cpu`, else `cpu`."""
    return "cuda" if choice != "cpu" and torch.cuda.is_available() else "cpu"


@contextmanager
def one_thread(parameters: int = 0) -> Iterator[None]:
    """Limit PyTorch to one CPU thread inside the context, unless a model has more than SMALL parameters."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if parameters <= SMALL else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
