from collections import Counter

import pytest
import torch
from course_lib.serving.engine import Generation, adjust, draw
from course_lib.serving.request import RequestRow

PROBABILITIES = torch.tensor([0.1, 0.4, 0.2, 0.3])  # best first: 1, 3, 2, 0


def drawn(row: RequestRow, times: int = 4000) -> dict[int, float]:
    """Shares of the tokens drawn by so many rows that differ in their seed."""
    texts = [
        Generation(RequestRow(row.ids, 9, top_k=row.top_k, top_p=row.top_p, seed=seed), 99) for seed in range(times)
    ]
    found = Counter(draw(PROBABILITIES.log().expand(times, -1), texts).tolist())
    return {token: count / times for token, count in found.items()}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (RequestRow((), 9, top_k=3), {1: 0.4 / 0.9, 3: 0.3 / 0.9, 2: 0.2 / 0.9}),
        (RequestRow((), 9, top_p=1.0), {1: 0.4, 3: 0.3, 2: 0.2, 0: 0.1}),
        (RequestRow((), 9, top_p=0.5), {1: 0.8, 3: 0.2}),  # the token at the border with what is left of the share
        (RequestRow((), 9, top_k=2, top_p=0.5), {1: 1.0}),  # half of the two's mass of 0.7
    ],
)
def test_tokens_are_drawn_from_top_k_and_then_top_p(row: RequestRow, expected: dict[int, float]) -> None:
    assert drawn(row) == pytest.approx(expected, abs=0.03)


def test_top_p_decays_to_its_least_and_is_reset() -> None:
    text = Generation(RequestRow((), 9, top_p=0.8, top_p_decay=0.5, top_p_min=0.3, top_p_reset_id=7), 99)
    shares = []
    for token in (1, 2, 7, 1):
        text.add(token)
        shares.append(text.top_p)
    assert shares == [0.4, 0.3, 0.8, 0.4]
    text = Generation(RequestRow((), 9, top_k=5, top_p=0.8, top_p_decay=0.5), 99)
    text.add(1)
    assert text.top_p == 0.8  # a top_k: no decay


def test_temperature_and_penalty_change_the_logits() -> None:
    logits = torch.tensor([[2.0, -2.0, 1.0, 0.5], [2.0, -2.0, 1.0, 0.5]])
    rows = [RequestRow((0, 1, 0), 9, repetition_penalty=2.0, temperature=0.5), RequestRow((0,), 9)]
    found = adjust(logits.clone(), [Generation(row, 99) for row in rows])
    assert found[0].tolist() == [2.0, -8.0, 2.0, 1.0]  # each token once, below 0 further down
    assert found[1].tolist() == logits[1].tolist()
