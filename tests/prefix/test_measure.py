"""Exact matches compared with real greedy generation; losses of examples."""

import pytest
import torch
from course_lib.generation.generator import Generator
from course_lib.models import frozen_base
from course_lib.prefix.measure import held_out_loss, right
from course_lib.prefix.model import PrefixModel
from course_lib.prefix.samples import TokenRow
from course_lib.pretrain import text_codec

from tests.prefix import bases


@pytest.mark.parametrize("family", bases.FAMILIES)
def test_right_answers_are_those_of_greedy_generation(tmp_path, family):
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
    changed = [TokenRow([*row.ids[:-1], (row.ids[-1] + 1) % 50], row.learned) for row in rows]
    mixed = [each.example() for each in (rows[0], *changed, *rows)]
    assert right(model.eval(), mixed, batch_size=2) == [True, False, False, False, True, True, True]


def test_the_held_out_loss_is_the_mean_over_the_tokens_of_all_examples():
    table = torch.randn(7, 7, generator=torch.Generator().manual_seed(0))
    examples = [([1, 2, 3], [-100, 3, 4]), ([5], [6])]
    logs = table.log_softmax(-1)
    expected = -(logs[2, 3] + logs[3, 4] + logs[5, 6]) / 3
    assert held_out_loss(lambda ids: table[ids], examples) == pytest.approx(expected.item(), abs=1e-6)
    assert right(lambda ids: table[ids], examples) == [
        table[2].argmax() == 3 and table[3].argmax() == 4,
        table[5].argmax() == 6,
    ]
