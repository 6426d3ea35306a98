"""What a call allocates, by PyTorch's own record: shared by the tests of the memory planners."""

import gc
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

Result = TypeVar("Result")


def allocated(work: Callable[[], Result]) -> tuple[int, int, Result]:
    """Returns (bytes saved when `work` ends, peak bytes during it, its result).

    The profiler remembers every block that it once saw. Recomputed layers leave reference cycles that hold such blocks (600 kB
    in these tests), so a garbage collection in the middle of a later call would be counted as memory which that call gave back.
    Hence the collection before, and none during, the call.
    """
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
            result = work()
    finally:
        if was_enabled:
            gc.enable()
    events = sorted(
        (e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()
    )
    saved = peak = 0
    for event in events:
        saved += event.nbytes()
        peak = max(peak, saved)
    return saved, peak, result


def norms_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes autocast on the CPU compute the norms in fp32, as on a GPU: the planner's figures are for GPUs."""
    norm = functional.layer_norm

    def in_fp32(x: Tensor, shape: Any, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            x, weight, bias = x.float(), weight.float(), bias.float()
        return norm(x, shape, weight, bias, eps)

    monkeypatch.setattr(functional, "layer_norm", in_fp32)
