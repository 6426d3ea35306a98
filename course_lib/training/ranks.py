"""A rank: one of the processes that train a run together, or the calling process, if it trains alone."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from course_lib.training import extensions
from course_lib.training.interruptions import STARTED, follow_starter
from course_lib.training.settings import RunConfig

# The first rank may prepare data for minutes while the others wait.
TIMEOUT = timedelta(minutes=30)
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Rank:
    """One rank of a run, and what it says to the others. All ranks must call the same methods in the same order."""

    number: int
    ranks: int
    nodes: int
    local: int  # number of the rank on its node
    device: torch.device
    # The group for what does not concern the device, so that nobody waits for a GPU; None: the default group
    control: Any = None

    @property
    def first(self) -> bool:
        """Whether this rank alone reads and writes the run folder."""
        return self.number == 0

    @property
    def reports(self) -> bool:
        """Whether this rank returns the result; that of ranks which starter.py has started is for the starter."""
        return self.first and STARTED not in os.environ

    @property
    def first_of_node(self) -> bool:
        """Whether this is the first rank on its node."""
        return self.local == 0

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Replace a tensor by its sum over all ranks, and return it."""
        if self.ranks > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Return whether the flag of any rank is set."""
        if self.ranks == 1:
            return flag
        number = torch.tensor(int(flag))
        dist.all_reduce(number, group=self.control)
        return bool(number)

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self.ranks > 1:
            dist.barrier(group=self.control)

    def broadcast(self, thing: Thing) -> Thing:
        """Return what the first rank passes; what the others pass is ignored."""
        if self.ranks == 1:
            return thing
        things = [thing]
        dist.broadcast_object_list(things, group=self.control)
        return things[0]


def started_as_rank() -> bool:
    """Return whether this process is one of several ranks: of starter.py, deepspeed, torchrun or a cluster."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def joined(settings: RunConfig) -> Iterator[Rank]:
    """Connect this process with the other ranks in the block, or with DeepSpeed, if one rank needs it.

    Afterwards the process is as before: without a process group, with its environment variables.
    """
    environment, excepthook = dict(os.environ), sys.excepthook
    several = started_as_rank()
    follow_starter()
    try:
        yield _join(settings, several)
        if several:
            _leave()
    finally:
        # After an error, one of several ranks could wait for the others for ever, and its process ends anyway.
        if not several and settings.uses_deepspeed(1):
            _leave()
        # PyTorch installs one that names the rank.
        sys.excepthook = excepthook
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)


def _join(settings: RunConfig, several: bool) -> Rank:
    number, ranks, local = 0, 1, 0
    if several:
        number, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_RANK", "0"))
    on_cpu = settings.launch.device == "cpu" or not torch.cuda.is_available()
    if several and on_cpu:
        # DeepSpeed's launcher sets this variable to the numbers of CPU ranks, as if they were GPUs.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if on_cpu:
        device = torch.device("cpu")
    elif several:
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    else:
        device = torch.device("cuda", torch.cuda.current_device())
    nodes, control = 1, None
    backend = "gloo" if on_cpu else "nccl"
    with_deepspeed = settings.uses_deepspeed(ranks)
    if several:
        dist.init_process_group(backend, timeout=TIMEOUT)
        if not on_cpu:
            control = dist.new_group(backend="gloo", timeout=TIMEOUT)
        first_ones = torch.tensor(int(local == 0))
        dist.all_reduce(first_ones, group=control)
        nodes = int(first_ones)
    elif with_deepspeed:
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    if with_deepspeed:
        os.environ["LOCAL_RANK"] = str(local)
        os.environ.update(extensions.build_environment())
        if settings.zero.offload_optimizer and local == 0:
            extensions.remove_stale_locks()
        _start_deepspeed(device.type, backend)
    return Rank(number, ranks, nodes, local, device, control)


def _start_deepspeed(device: str, backend: str) -> None:
    """Make DeepSpeed use a type of device and the process group of PyTorch."""
    os.environ["DS_ACCELERATOR"] = device
    # DeepSpeed logs to the standard output that it finds when it is imported; the first rank prints the log there.
    with redirect_stdout(sys.stderr):
        import deepspeed
        from deepspeed.accelerator import set_accelerator
        from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
        from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

        # An earlier run in this process may have used another one.
        set_accelerator(CPU_Accelerator() if device == "cpu" else CUDA_Accelerator())
        extensions.skip_shared_memory()
        deepspeed.init_distributed(backend)


def _leave() -> None:
    """Destroy the process group, if there is one."""
    comm: Any = sys.modules.get("deepspeed.comm.comm")
    if comm and comm.cdb:
        # This also drops the groups that DeepSpeed keeps.
        comm.destroy_process_group()
        comm.cdb = None
    elif dist.is_initialized():
        dist.destroy_process_group()
