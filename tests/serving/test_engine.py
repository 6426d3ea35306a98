import itertools
from types import SimpleNamespace

import pytest
import torch
from course_lib.errors import UsageError
from course_lib.generation.prefix_cache import Shape, past
from course_lib.serving.engine import Engine
from course_lib.serving.layout import Family
from course_lib.serving.measure import LENGTH, STEPS, step_seconds
from course_lib.serving.request import RequestRow

from tests.serving import tiny


def engine(family: Family = "gptneox") -> Engine:
    ids = SimpleNamespace(start_id=tiny.START, end_id=tiny.END)
    return Engine.of(SimpleNamespace(model=tiny.model(family), prefixes=tiny.prefixes(), config=ids))


def generated(model, ids, new, **options):
    """Hugging Face's own text, with an end token that never comes."""
    inputs = torch.tensor([ids])
    return model.generate(inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0, **options).tolist()  # fmt: skip


def step_by_step(model, ids, new, prefix):
    """Greedy text behind a prefix, everything computed anew for each token."""
    ids = list(ids)
    for _ in range(new):
        cache, mask = past([prefix], Shape.of(model.config), torch.float32, "cpu")
        front = mask.shape[1]
        position_ids = torch.arange(front, front + len(ids))[None]
        mask = torch.ones(1, front + len(ids), dtype=torch.long)
        with torch.inference_mode():
            logits = model(
                torch.tensor([ids]), past_key_values=cache, attention_mask=mask, position_ids=position_ids
            ).logits
        ids.append(int(logits[0, -1].argmax()))
    return ids


MIXED = [
    RequestRow((5, 6, 7), 12), RequestRow((9,), 20, task=0), RequestRow((4, 8, 7, 6, 5), 9, task=1, top_k=5, top_p=0.9, seed=3), RequestRow((), 7),
    RequestRow((4, 5), 20, top_p=0.9, seed=7, repetition_penalty=1.3, temperature=0.8),
    RequestRow((4, 5), 20, task=2, bad_words=((44,), (31, 18)), stop_words=((29,),)),
]  # fmt: skip


@pytest.mark.parametrize("family", ["gptneox", "gpt"])
def test_a_row_gets_the_same_text_alone_and_among_others(family: Family) -> None:
    ours = engine(family)
    together = ours.run(MIXED, log_probs=True)
    for row, answer in zip(MIXED, together):
        alone = ours.run([row], log_probs=True)[0]
        assert alone.ids == answer.ids
        assert alone.log_probs == pytest.approx(answer.log_probs, abs=1e-4)


@pytest.mark.parametrize("family", ["gptneox", "gpt"])
def test_greedy_text_is_that_of_hugging_face_and_of_the_prefix(family: Family) -> None:
    ours, prefix = engine(family), tiny.prefixes()
    ids = [(5, 6, 7), (9, 4), (3, 4, 5, 6, 8)]
    rows = [RequestRow(row, 12, task, end_id=999) for row in ids for task in (None, 0, 1, 2)]
    expected = [
        generated(ours.model, row, 12)[0] if task in (None, 2) else step_by_step(ours.model, row, 12, prefix[task])
        for row in ids
        for task in (None, 0, 1, 2)
    ]
    assert [answer.ids for answer in ours.run(rows)] == expected
    assert expected[0] != expected[1] != expected[2]


def test_an_empty_input_begins_with_the_start_token_and_does_not_show_it() -> None:
    ours = engine()
    assert ours.run([RequestRow((), 6)])[0].ids == ours.run([RequestRow((tiny.START,), 6)])[0].ids[1:]
    assert ours.run([RequestRow((), 6, start_id=9)])[0].ids == ours.run([RequestRow((9,), 6)])[0].ids[1:]


def test_the_end_token_a_stop_word_and_the_length_end_a_text() -> None:
    ours = engine()
    free = ours.run([RequestRow((5, 6, 7), 10, end_id=999)])[0].ids
    end = free[6]
    assert ours.run([RequestRow((5, 6, 7), 10, end_id=end)])[0].ids == free[: free.index(end, 3) + 1]
    stopped = ours.run([RequestRow((5, 6, 7), 10, end_id=999, stop_words=((1, 1), tuple(free[5:7])))])[0].ids
    assert stopped == free[:7]
    assert ours.run([RequestRow((5, 6, 7), 4, end_id=999)])[0].ids == free[:7]


def test_bad_words_are_not_written() -> None:
    ours = engine()
    free = ours.run([RequestRow((5, 6, 7), 10, end_id=999)])[0].ids
    without = ours.run([RequestRow((5, 6, 7), 10, end_id=999, bad_words=((free[3],),))])[0].ids
    assert free[3] not in without[3:]
    pair = free[4], free[5]
    without = ours.run([RequestRow((5, 6, 7), 10, end_id=999, bad_words=(pair,))])[0].ids
    assert pair not in itertools.pairwise(without) and without[:5] == free[:5]


def test_repetition_penalty_is_that_of_hugging_face() -> None:
    ours = engine()
    answer = ours.run([RequestRow((5, 6, 7), 20, repetition_penalty=1.7, end_id=999)])[0]
    assert [answer.ids] == generated(ours.model, [5, 6, 7], 20, repetition_penalty=1.7)


def test_log_probs_are_those_of_the_model() -> None:
    ours = engine()
    answer = ours.run([RequestRow((5, 6, 7), 6), RequestRow((8,), 6)], log_probs=True)[0]
    with torch.inference_mode():
        expected = ours.model(torch.tensor([answer.ids])).logits[0, 2:-1].log_softmax(-1)
    picked = expected.gather(-1, torch.tensor(answer.ids[3:])[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(answer.log_probs), picked, rtol=1e-4, atol=1e-4)
    assert ours.run([RequestRow((5,), 2)])[0].log_probs == []


def test_the_same_seed_gives_the_same_text_and_another_seed_another() -> None:
    ours = engine()
    rows = [RequestRow((5, 6), 20, top_p=0.99, seed=seed, end_id=999) for seed in (1, 1, 2, 2**64 - 1)]
    first, same, other, last = (answer.ids for answer in ours.run(rows))
    assert first == same and len({tuple(first), tuple(other), tuple(last)}) == 3


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (RequestRow((5,), 3, task=3), "prompt_learning_task_name_ids: 3"),
        (RequestRow((5,) * 50, 10, task=0), "input_lengths: 50"),
        (RequestRow((5, 60), 3), "input_ids: 60"),
        (RequestRow((5,), 3, stop_words=((-1,),)), "stop_words_list: -1"),
        (RequestRow((5,), 3, temperature=float("nan")), "temperature: nan"),
        (RequestRow((5,), 3, beam_width=2), "beam_width: 2"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(row: RequestRow, name: str) -> None:
    ours = engine()
    ours.model.forward = None  # not reached
    with pytest.raises(UsageError, match=f"^{name} "):
        ours.run([RequestRow((5,), 3), row])


def test_a_text_may_fill_all_positions() -> None:
    filled = engine("gpt").run([RequestRow((5,) * 49, 10, task=0, end_id=999)])[0].ids
    assert len(filled) == tiny.POSITIONS - 5
    with pytest.raises(UsageError, match="the model has 64 positions"):
        engine("gpt").check(RequestRow((5,) * 49, 11, task=0))


def test_a_measured_step_is_one_of_so_many_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    model, threads, shapes = tiny.model("gpt"), torch.get_num_threads(), []
    forward = model.forward

    def counted(ids, **options):
        shapes.append((tuple(ids.shape), torch.get_num_threads()))
        return forward(ids, **options)

    monkeypatch.setattr(model, "forward", counted)
    assert step_seconds(model, 3) > 0
    assert shapes == [((3, LENGTH), 1), *[((3, 1), 1)] * STEPS]
    assert torch.get_num_threads() == threads
