"""Exact matches held against real greedy generation; finished lines; and memory held against what PyTorch holds."""

import pytest
import torch
from course_lib.generation.generator import Generator
from course_lib.models import frozen_base
from course_lib.prefix.measure import exact_matches, kept_for_backward
from course_lib.prefix.model import PrefixModel
from course_lib.prefix.samples import TokenRow
from course_lib.pretrain import text_codec
from torch import nn

from tests.prefix import bases


@pytest.mark.parametrize("family", bases.FAMILIES)
def test_exact_matches_are_those_of_greedy_generation(tmp_path, family):
    """Targets are the model's own greedy texts; some of them are changed in one token, or go on after the end."""
    folder = bases.folder(tmp_path, family)
    generator, codec = Generator(folder, text_codec.load), text_codec.load(folder)
    model = PrefixModel(frozen_base.load(folder), None)
    end, rows = codec.tokenizer.eos_token_id, []
    for prompt in ("早稲田", "牛丼を", "大学で"):
        ids = codec.encode(prompt)
        with torch.inference_mode():
            new = generator.model.generate(
                torch.tensor([ids]), max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=end
            )[0, len(ids) :].tolist()
        rows.append(TokenRow([*ids, *new], len(ids)))
    right, changed = rows[0], [TokenRow([*row.ids[:-1], (row.ids[-1] + 1) % 50], row.learned) for row in rows]
    assert exact_matches(model, rows) == 1.0
    assert exact_matches(model, changed) == 0.0
    assert exact_matches(model, [right, *changed], batch_size=2) == 0.25


def test_what_is_kept_for_the_backward_pass():
    layer, inputs = nn.Linear(30, 20), torch.ones(4, 30)
    result, size = kept_for_backward(layer, lambda: torch.tanh(layer(inputs)).sum())
    # The inputs of the linear layer, for the gradient of its weights, and the outputs of tanh.
    assert size == 4 * (4 * 30 + 4 * 20)
    result.backward()
    frozen = layer.requires_grad_(False)
    assert kept_for_backward(frozen, lambda: frozen(inputs).sum())[1] == 0
