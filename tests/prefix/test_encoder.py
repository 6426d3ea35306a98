"""The encoder: rinna's names and counts, the order of its output, and the form without MLP."""

import torch
from course_lib.generation.prefix_cache import Shape
from course_lib.prefix.encoder import PrefixEncoder

SMALL = Shape(12, 12, 64)
RINNA = Shape(36, 22, 128)  # rinna/japanese-gpt-neox-3.6b: 36 × 2816


def test_names_and_shapes_are_rinnas() -> None:
    found = {name: list(tensor.shape) for name, tensor in PrefixEncoder(7, 48, 5, 3).state_dict().items()}
    assert found == {
        "prefix_wte.weight": [7, 5],
        "prefix_mlp.0.weight": [3, 5],
        "prefix_mlp.0.bias": [3],
        "prefix_mlp.2.weight": [48, 3],
        "prefix_mlp.2.bias": [48],
    }
    assert list(PrefixEncoder(7, 48, 5, 3, dropout=0.5).state_dict()) == list(found)
    alone = PrefixEncoder(7, 48, 5, 3, reparameterize=False)
    assert {name: list(tensor.shape) for name, tensor in alone.state_dict().items()} == {"prefix_wte.weight": [7, 48]}


def test_the_forward_pass_is_the_mlp_of_the_embedding() -> None:
    encoder = PrefixEncoder(4, 12, 3, 2)
    names = encoder.state_dict()
    inner = torch.tanh(names["prefix_wte.weight"] @ names["prefix_mlp.0.weight"].T + names["prefix_mlp.0.bias"])
    expected = inner @ names["prefix_mlp.2.weight"].T + names["prefix_mlp.2.bias"]
    torch.testing.assert_close(encoder(), expected)


def test_what_is_deployed_has_no_dropout_and_no_tie_to_the_encoder() -> None:
    encoder = PrefixEncoder(4, 12, 3, 2, dropout=0.5).train()
    rows = encoder.deployed()
    assert encoder.training and not rows.requires_grad and rows.dtype == torch.float32
    assert torch.equal(rows, encoder.eval()()) and not torch.equal(rows, encoder.train()())
    alone = PrefixEncoder(4, 12, 3, 2, reparameterize=False)
    rows = alone.deployed()
    with torch.no_grad():
        alone.prefix_wte.weight.zero_()
    assert rows.abs().sum() > 0
