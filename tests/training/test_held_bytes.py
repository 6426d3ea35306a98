"""The count of bytes that are alive at once."""

import torch
from course_lib.training.held_bytes import HeldBytes


def test_a_storage_counts_once_and_until_it_is_freed() -> None:
    alive = HeldBytes()
    first = torch.zeros(100)
    alive.see(first)
    alive.see(first[:10])
    second = alive.results(lambda tensor: tensor + 1)(torch.zeros(50))
    assert alive.most == 4 * 150
    del first, second
    # Of the 600 bytes nothing is alive any more.
    assert alive.arguments(lambda tensor, factor: tensor.sum() * factor)(torch.ones(25), factor=2) == 50
    assert alive.most == 4 * 150 and sum(alive._living.values()) == 4 * 25


def test_gradients_that_a_hook_frees_are_alive_one_at_a_time() -> None:
    for frees, most in ((False, 3), (True, 1)):
        alive, layers = HeldBytes(), [torch.nn.Parameter(torch.ones(100)) for _ in range(3)]
        for layer in layers:
            layer.register_hook(alive.see)
            if frees:
                layer.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))
        value = torch.ones(100)
        for layer in layers:
            value = (value * layer).sin()
        value.sum().backward()
        assert alive.most == 400 * most
