"""TFRecord files against bytes that TensorFlow 2.15 wrote, and through tensorboard's reader."""

from pathlib import Path

import numpy as np
import pytest
from course_lib.gptsan.tfrecord import write_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gptsan.tfrecords import read_examples

TENSORFLOW = bytes.fromhex(  # tf.io.TFRecordWriter: an Example with the feature y, of [-1, 0, 300, 35999]
    "1d00000000000000602fdf230a1b0a190a017912141a120a10ffffffffffffffffff0100ac029f9902cc3b3372"
)


def test_writes_what_tensorflow_writes(tmp_path: Path) -> None:
    with open(tmp_path / "ours", "wb") as out:
        write_examples(out, [{"y": np.array([-1, 0, 300, 35999])}])
    assert (tmp_path / "ours").read_bytes() == TENSORFLOW


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.text(max_size=3), st.lists(st.integers(-(2**63), 2**63 - 1))), max_size=3))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, examples: list[dict[str, list[int]]]) -> None:
    path = tmp_path_factory.mktemp("round") / "a.tfrecord"
    with open(path, "wb") as out:
        write_examples(out, [{name: np.array(values, np.int64) for name, values in e.items()} for e in examples])
    assert [{name: values.tolist() for name, values in e.items()} for e in read_examples(path)] == examples
