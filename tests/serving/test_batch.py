"""Rows that join and leave a running batch, against the same rows alone."""

import random
from typing import Any

import pytest
import torch
from course_lib.serving import engine as engine_module
from course_lib.serving.engine import Engine, Generation, TextBatch
from course_lib.serving.layout import Family
from course_lib.serving.request import RequestRow

from tests.serving import tiny
from tests.serving.test_engine import MIXED, engine


def rows(count: int, seed: int) -> list[RequestRow]:
    """Of all kinds: with and without a prefix, greedy, sampled with a seed for each row."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        ids = tuple(rng.randrange(3, tiny.VOCABULARY) for _ in range(rng.randint(1, 20)))
        kind: dict[str, Any] = rng.choice([{}, {"top_k": 5, "seed": number}, {"top_p": 0.9, "seed": number}])
        found.append(RequestRow(ids, rng.randint(1, 30), rng.choice([None, 0, 1, 2]), **kind))
    return found


def driven(ours: Engine, asked: list[RequestRow], seed: int, dropped: frozenset[int] = frozenset()) -> list[Generation]:
    """The rows after a batch in which they joined at random times, and from which some were dropped at random times."""
    rng, batch = random.Random(seed), TextBatch(ours.model)
    generations = [ours.generation(row, log_probs=True) for row in asked]
    waiting, ended = list(generations), []
    unwanted = [generations[index] for index in dropped]
    while waiting or batch.running:
        count = rng.randint(0, min(batch.free, len(waiting)))
        ended += batch.join(waiting[:count])
        del waiting[:count]
        if batch.running:
            ended += batch.step()
        if unwanted and unwanted[0] in batch.running and rng.random() < 0.5:
            batch.leave({unwanted.pop(0)})
    left = [generation for index, generation in enumerate(generations) if index not in dropped]
    assert {*left} <= {*ended} and len(ended) == len({*ended})
    assert not batch.slots.lengths and not batch.slots.store.numel()
    return generations


@pytest.mark.parametrize("family", ["gptneox", "gpt"])
@pytest.mark.parametrize("texts", [4, 64])
def test_rows_that_join_at_any_time_get_the_texts_they_get_alone(
    family: Family, texts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, asked = engine(family), MIXED + rows(25, seed=texts)
    monkeypatch.setattr(engine_module, "MAX_TEXTS", texts)
    for seed, generation in enumerate(driven(ours, asked, seed=1)):
        alone, together = ours.run([asked[seed]], log_probs=True)[0], generation
        assert together.ids == alone.ids
        assert together.log_probs == pytest.approx(alone.log_probs, abs=1e-4)


def test_a_row_that_is_dropped_leaves_the_others_as_they_are() -> None:
    ours, asked = engine(), rows(20, seed=3)
    # long texts that no end token ends, so that they run when they are dropped
    dropped = frozenset(index for index in range(0, 20, 4))
    for index in dropped:
        asked[index] = RequestRow((5, 6, 7), 40, end_id=tiny.VOCABULARY)
    for index, generation in enumerate(driven(ours, asked, 2, dropped)):
        if index in dropped:
            assert not generation.finished
        else:
            assert generation.ids == ours.run([asked[index]])[0].ids


def test_a_waiting_row_takes_the_place_of_a_finished_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "MAX_TEXTS", 2)
    sizes: list[int] = []
    step = TextBatch.step

    def counted(batch: TextBatch) -> list[Generation]:
        sizes.append(len(batch.running))
        return step(batch)

    monkeypatch.setattr(TextBatch, "step", counted)
    asked = [RequestRow((5,), length, end_id=tiny.VOCABULARY) for length in (13, 5, 5, 5)]
    engine().run(asked)
    # 12 further tokens of the long text, beside them 4 of each short one; static batching: 12 steps of two, then 4
    assert sizes == [2] * 12


def test_only_rows_that_change_their_place_are_copied() -> None:
    ours = engine()
    batch = TextBatch(ours.model)
    generations = [ours.generation(RequestRow((5 + number, 6), 20, end_id=tiny.VOCABULARY)) for number in range(6)]
    batch.join(generations)
    store = batch.slots.store
    before = store[:, :, :, :, :2].clone()
    batch.leave({generations[1]})
    # the last row moved into the free row; the same memory is used further
    assert batch.slots.store is store
    torch.testing.assert_close(store[:, :, :5, :, :2], before[:, :, [0, 5, 2, 3, 4]], rtol=0, atol=0)
    assert batch.running[1] is generations[5]
