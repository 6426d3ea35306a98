"""The measurement itself: what ran earlier in the process does not change it."""

import gc

import pytest
import torch

from tests.allocations import allocated


class Node:
    """Part of a reference cycle that holds a tensor, as a recomputed layer leaves one."""

    def __init__(self) -> None:
        self.itself, self.tensor = self, torch.zeros(100_000)


def a_list_of_tensors() -> list[torch.Tensor]:
    # enough objects that the collector would run in the middle of the call
    small = [[number] for number in range(50_000)]
    return [torch.zeros(1000) for _ in small[:3]]


def test_garbage_of_an_earlier_measured_call_is_not_counted() -> None:
    for _ in range(5):
        allocated(lambda: Node() and None)
        kept, peak, tensors = allocated(a_list_of_tensors)
        assert kept == 3 * 4000
        assert peak == 3 * 4000
        assert len(tensors) == 3
    assert gc.isenabled()


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_draws_the_same_numbers(number: int) -> None:
    assert torch.rand(()).item() == torch.rand((), generator=torch.Generator().manual_seed(0)).item()
