"""Sampling and padding of notebook 6b, and its stored figures."""

from collections import Counter

import torch
from course_lib.notebooks import measured
from course_lib.prefix.rewards import padded, sample
from transformers import GPT2Config, GPT2LMHeadModel

END = 0


def model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    # Weights that are far apart, so that texts end at different lengths and read what stands before.
    config = GPT2Config(
        vocab_size=7, n_embd=16, n_layer=2, n_head=2, n_positions=32, initializer_range=0.6, eos_token_id=END
    )
    return GPT2LMHeadModel(config).eval()


def test_texts_are_drawn_as_the_model_says() -> None:
    """Counts of the first two tokens behind starts of different lengths, in one batch, against their probabilities."""
    chosen, starts, times = model(), ([0, 3], [0, 5, 2, 4, 1]), 3000
    torch.manual_seed(1)
    texts = sample(chosen, [start for start in starts for _ in range(times)], END, longest=9)
    for number, start in enumerate(starts):
        counts = Counter((*text[:2],) for text in texts[number * times : (number + 1) * times])
        for first in range(1, 7):
            with torch.no_grad():
                logits = chosen(torch.tensor([[*start, first]])).logits[0].softmax(-1)
            for second in range(7):
                expected = (logits[-2, first] * logits[-1, second]).item()
                assert abs(counts[first, second] / times - expected) < 0.04, (start, first, second)


def test_a_text_stops_at_its_end_or_at_the_limit() -> None:
    torch.manual_seed(2)
    starts = [[0, 1]] * 50 + [[0, 2, 3]] * 50
    texts = sample(model(), starts, END, longest=12)
    assert {END not in text[:-1] for text in texts} == {True}
    assert {len(text) for text in texts if text[-1] != END} <= {9}
    assert len({len(text) for text in texts}) > 3


def test_the_mask_has_the_texts_own_tokens() -> None:
    ids, mask = padded([0, 5], [[1, 2, 0], [3]], END)
    assert ids.tolist() == [[0, 5, 1, 2, 0], [0, 5, 3, 0, 0]]
    assert mask.tolist() == [[0, 0, 1, 1, 1], [0, 0, 1, 0, 0]]


def test_each_stored_run_has_curves_and_was_judged() -> None:
    judged = {(row["method"], row["seed"]) for row in measured.rows("prefix/rewards")}
    curves = {(row["method"], row["seed"]) for row in measured.rows("prefix/rewards_curves")}
    assert curves == {run for run in judged if run[0] != "start"}
