"""The encoder: rinna's names and counts, the order of its output, and the form without MLP."""

import torch
from course_lib.prefix.encoder import PrefixEncoder


def test_names_and_shapes_are_rinnas() -> None:
    found = {name: list(tensor.shape) for name, tensor in PrefixEncoder(7, 48, 5, 3).state_dict().items()}
    mlp = {
        "prefix_mlp.0.weight": [3, 5],
        "prefix_mlp.0.bias": [3],
        "prefix_mlp.2.weight": [48, 3],
        "prefix_mlp.2.bias": [48],
    }
    assert found == {"prefix_wte.weight": [7, 5]} | mlp
    assert list(PrefixEncoder(7, 48, 5, 3, dropout=0.5).state_dict()) == list(found)
    alone = PrefixEncoder(7, 48, 5, 3, reparameterize=False)
    assert {name: list(tensor.shape) for name, tensor in alone.state_dict().items()} == {"prefix_wte.weight": [7, 48]}


def test_what_is_deployed_has_no_dropout() -> None:
    encoder = PrefixEncoder(4, 12, 3, 2, dropout=0.5).train()
    rows = encoder.deployed()
    assert encoder.training and not rows.requires_grad and rows.dtype == torch.float32
    assert torch.equal(rows, encoder.eval()()) and not torch.equal(rows, encoder.train()())
