"""What the server in this process refuses, as Triton does, before a request reaches the model."""

from typing import Any

import pytest
from course_lib.errors import UsageError
from course_lib.serving.in_process_server import inputs


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
        inputs(asked(**{name: tensor}))
    assert str(caught.value) == f"{name}: {message}"


def test_declared_tensors_are_taken() -> None:
    words = ("INT32", [2, 2, 2], [5, 6, 1, 2, 0, 0, -1, -1])
    found = inputs(asked(bad_words_list=words, temperature=("FP32", [2, 1], [0.5, 1])))
    assert found["input_ids"].tolist() == [[5, 6, 7], [8, 9, 0]]
    assert found["bad_words_list"].tolist() == [[[5, 6], [1, 2]], [[0, 0], [-1, -1]]]
    assert found["temperature"].tolist() == [[0.5], [1.0]]
