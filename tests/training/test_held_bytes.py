"""The count of bytes that are held at once."""

import torch
from course_lib.training.held_bytes import HeldBytes


def test_a_storage_counts_once_and_until_it_is_freed() -> None:
    held = HeldBytes()
    first = torch.zeros(100)
    held.see(first)
    held.see(first[:10])
    second = held.results(lambda tensor: tensor + 1)(torch.zeros(50))
    assert held.most == 4 * 150
    del first, second
    # Of the 600 bytes nothing is held any more.
    assert held.arguments(lambda tensor, factor: tensor.sum() * factor)(torch.ones(25), factor=2) == 50
    assert held.most == 4 * 150 and sum(held._living.values()) == 4 * 25


def test_gradients_that_a_hook_frees_are_held_one_at_a_time() -> None:
    for frees, most in ((False, 3), (True, 1)):
        held, layers = HeldBytes(), [torch.nn.Parameter(torch.ones(100)) for _ in range(3)]
        for layer in layers:
            layer.register_hook(held.see)
            if frees:
                layer.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))
        value = torch.ones(100)
        for layer in layers:
            value = (value * layer).sin()
        value.sum().backward()
        assert held.most == 400 * most
