"""How tensors become rows, and answers tensors; what is refused before a request reaches the model."""

from typing import Any

import pytest
import torch
from course_lib.errors import UsageError
from course_lib.serving.request import Answer, RequestRow, outputs, rows_of, tensors_from_json, word_list
from hypothesis import given
from hypothesis import strategies as st


def request(**changed: object) -> dict[str, torch.Tensor]:
    """Two rows as the backend sees them: scalars as [B]."""
    plain: dict[str, object] = {
        "input_ids": [[5, 6, 7], [8, 0, 0]], "input_lengths": [3, 1], "request_output_len": [[4], [2]]
    } | changed  # fmt: skip
    return {name: torch.as_tensor(values) for name, values in plain.items()}


def test_what_is_not_sent_keeps_its_default() -> None:
    assert rows_of(request()) == [RequestRow((5, 6, 7), 4), RequestRow((8,), 2)]


def test_unsigned_numbers_are_read_as_such() -> None:
    large = torch.tensor([2**64 - 1, 3], dtype=torch.uint64)
    found = rows_of(request(random_seed=large, end_id=torch.tensor([2**32 - 1, 7], dtype=torch.uint32)))
    assert [(row.seed, row.end_id) for row in found] == [(2**64 - 1, 2**32 - 1), (3, 7)]


def test_one_number_a_row_may_come_with_its_own_dimension() -> None:
    found = rows_of(request(prompt_learning_task_name_ids=[[1], [0]], runtime_top_k=[5, 6]))
    assert [(row.task, row.top_k) for row in found] == [(1, 5), (0, 6)]


words = st.lists(st.lists(st.integers(0, 60000), min_size=1, max_size=4).map(tuple), max_size=4).map(tuple)


@given(st.lists(words, min_size=2, max_size=2))
def test_word_lists_come_back(lists: list[tuple[tuple[int, ...], ...]]) -> None:
    table = torch.from_numpy(word_list(lists))
    assert [row.bad_words for row in rows_of(request(bad_words_list=table))] == lists


def test_a_word_list_has_the_layout_of_the_format() -> None:
    assert word_list([[(5, 6), (7,)], []]).tolist() == [[[5, 6, 7], [2, 3, -1]], [[0, 0, 0], [-1, -1, -1]]]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("request_output_len", [[4, 4], [2, 2]]),
        ("bad_words_list", [[[5], [9]], [[5], [1]]]),
    ],
)
def test_tensors_that_do_not_fit_are_refused(name: str, values: object) -> None:
    with pytest.raises(UsageError, match=name):
        rows_of(request(**{name: values}))


def test_answers_are_padded_with_the_end_token_of_their_row() -> None:
    tensors = request(end_id=[2, 9])
    answers = [Answer([5, 6, 7, 1, 2]), Answer([8, 3])]
    found = outputs(tensors, rows_of(tensors), answers, 2)
    assert list(found) == ["output_ids", "sequence_length"]
    assert found["output_ids"].dtype == torch.uint32
    assert found["output_ids"].tolist() == [[[5, 6, 7, 1, 2, 2, 2]], [[8, 3, 9, 9, 9, 9, 9]]]
    assert found["sequence_length"].tolist() == [[5], [2]]


def test_probabilities_come_only_if_asked_for() -> None:
    answers = [Answer([5, 6, 7, 1], [-0.5]), Answer([8, 3, 2], [-1.0, -0.25])]
    asked = request(is_return_log_probs=[True, True])
    found = outputs(asked, rows_of(asked), answers, 2)
    assert found["cum_log_probs"].tolist() == [[-0.5], [-1.25]]
    assert found["output_log_probs"].tolist() == [[[-0.5, 0, 0, 0]], [[-1.0, -0.25, 0, 0]]]
    quiet = request(is_return_log_probs=[False, True])  # the first row decides
    assert "cum_log_probs" not in outputs(quiet, rows_of(quiet), answers, 2)


@pytest.mark.parametrize(
    ("ids", "lengths", "longest"),
    [
        ([[5, 6, 7]], [4], 4),
        ([[5, 6, 7]], [2], 2),
        ([[5, 6, 7]], [0], 0),
        ([[5, 6, 7], [8, 9, 0]], [2, 2], 2),
        ([[5, 6, 7], [8, 9, 0]], [3, 4], 4),
        ([[5, 6, 7]], [2**32 - 1], 2**32 - 1),
    ],
)
def test_lengths_that_are_not_those_of_the_ids_are_refused(
    ids: list[list[int]], lengths: list[int], longest: int
) -> None:
    """Otherwise ids would be dropped, or missing ones be taken for the text's end, without a word."""
    given = request(input_ids=ids, input_lengths=lengths, request_output_len=[[1]] * len(ids))
    with pytest.raises(UsageError) as error:
        rows_of(given)
    assert str(error.value) == f"input_lengths: {longest} is not allowed; the longest row of input_ids has 3 ids"


@pytest.mark.parametrize(
    ("ids", "lengths", "rows"),
    [
        ([[5, 6, 7], [8, 9, 0]], [3, 0], [(5, 6, 7), ()]),
        ([[0]], [0], [()]),
        ([[0], [4]], [0, 1], [(), (4,)]),
    ],
)
def test_shorter_rows_are_padded_and_no_input_is_one_column(
    ids: list[list[int]], lengths: list[int], rows: list[tuple[int, ...]]
) -> None:
    given = request(input_ids=ids, input_lengths=lengths, request_output_len=[[1]] * len(ids))
    assert [row.ids for row in rows_of(given)] == rows


# The JSON that a server without Triton reads: it refuses what Triton refuses


def asked(**changed: tuple[str, list[int], list[Any]]) -> dict[str, Any]:
    """Two rows of three ids."""
    plain = {
        "input_ids": ("UINT32", [2, 3], [5, 6, 7, 8, 9, 0]),
        "input_lengths": ("UINT32", [2, 1], [3, 2]),
        "request_output_len": ("UINT32", [2, 1], [4, 4]),
    } | changed
    keys = ("datatype", "shape", "data")
    return {"inputs": [{"name": name, **dict(zip(keys, one, strict=True))} for name, one in plain.items()]}


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("input_ids", ("UINT32", [0, 3], []), "shape [0, 3] is not allowed; allowed: [1, n]"),
        ("input_ids", ("UINT32", [6], [5, 6, 7, 8, 9, 0]), "shape [6] is not allowed; allowed: [6, n]"),
        ("input_ids", ("UINT32", [2, -1], [5, 6, 7, 8, 9, 0]), "shape [2, -1] is not allowed; allowed: [2, n]"),
        ("input_ids", ("FP32", [2, 3], [5, 6, 7, 8, 9, 0]), "FP32 is not allowed; allowed: UINT32"),
        ("input_lengths", ("UINT32", [1, 1], [3]), "shape [1, 1] is not allowed; allowed: [2, 1]"),
        ("input_lengths", ("UINT32", [3, 1], [3, 2, 1]), "shape [3, 1] is not allowed; allowed: [2, 1]"),
        ("temperature", ("UINT32", [2, 1], [1, 1]), "UINT32 is not allowed; allowed: FP32"),
        ("temperature", ("BF16", [2, 1], [1, 1]), "BF16 is not allowed; allowed: FP32"),
        ("bad_words_list", ("INT32", [3, 2, 1], [5, 1] * 3), "shape [3, 2, 1] is not allowed; allowed: [2, 2, n]"),
        ("bad_words_list", ("INT32", [2, 3, 1], [5, 1, 0] * 2), "shape [2, 3, 1] is not allowed; allowed: [2, 2, n]"),
    ],
)
def test_a_tensor_of_another_type_or_shape_is_refused(name: str, tensor: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        tensors_from_json(asked(**{name: tensor}))
    assert str(caught.value) == f"{name}: {message}"


def test_declared_tensors_are_taken() -> None:
    words = ("INT32", [2, 2, 2], [5, 6, 1, 2, 0, 0, -1, -1])
    found = tensors_from_json(asked(bad_words_list=words, temperature=("FP32", [2, 1], [0.5, 1])))
    assert found["input_ids"].tolist() == [[5, 6, 7], [8, 9, 0]]
    assert found["bad_words_list"].tolist() == [[[5, 6], [1, 2]], [[0, 0], [-1, -1]]]
    assert found["temperature"].tolist() == [[0.5], [1.0]]
