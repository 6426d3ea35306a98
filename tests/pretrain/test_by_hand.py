"""The parts of notebook 4a in the library are those of the notebook."""

import ast
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from course_lib.paths import NOTEBOOKS
from course_lib.pretrain import by_hand
from torch import nn

from tests.exercises.answers.folded import Folded

NAME = "04_gpt2_by_hand"


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    """The course's versions in the notebook's folded cells, and its functions `fresh` and `draw`."""
    names: dict[str, Any] = Folded(NAME, torch=torch, nn=nn, np=np).names
    names["V"] = 50
    for cell in nbformat.read(NOTEBOOKS / f"{NAME}.ipynb", as_version=4).cells:
        if cell.cell_type == "code" and cell.source.startswith(("def fresh", "held_out =")):
            functions: list[ast.stmt] = [
                each for each in ast.parse(cell.source).body if isinstance(each, ast.FunctionDef)
            ]
            exec(compile(ast.Module(functions, []), NAME, "exec"), names)
    return names


def test_weights_batches_and_losses_are_the_same(theirs: dict[str, Any]) -> None:
    model, twin = by_hand.fresh(50, seed=3), theirs["fresh"](seed=3)
    weights = twin.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    tokens = torch.arange(400) % 7
    batches = by_hand.draw(tokens, 6, seed=1, batch=2, seq=9)
    assert torch.equal(batches, theirs["draw"](tokens, 6, seed=1, batch=2, seq=9))
    optimizers = by_hand.AdamW(model.parameters()), theirs["AdamW"](twin.parameters())
    losses = [*by_hand.learn(model, optimizers[0], batches, 1e-2, warm_up=3)]
    assert losses == pytest.approx([*theirs["learn"](twin, optimizers[1], batches, 1e-2, warm_up=3)], rel=1e-5)
    assert losses[-1] < losses[0]


def test_attention_to_stored_tokens_is_the_same(theirs: dict[str, Any]) -> None:
    q, k, v = torch.randn(3, 2, 4, 5, 8)
    for rows in (1, 2, 5):
        torch.testing.assert_close(
            by_hand.attend(q[..., -rows:, :], k, v), theirs["attend_stored"](q[..., -rows:, :], k, v)
        )
    torch.testing.assert_close(by_hand.attend(q, k, v), theirs["attend"](q, k, v))
