"""TFRecord files against bytes that TensorFlow 2.15 wrote, and through tensorboard's reader."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from course_lib.gptsan.tfrecord import write_examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.summary.writer.record_writer import RecordWriter

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


def test_checksums_cost_a_fraction_of_tensorboards() -> None:
    """Its writer computes them in Python: 7 ms for each file of a corpus of short ones."""

    def seconds(write: Callable[[], object]) -> float:
        start = process_time()
        write()
        return process_time() - start

    example = BytesIO()
    write_examples(example, [{"x": np.arange(1280), "y": np.arange(1280)}])
    content, theirs = example.getvalue()[12:-4], RecordWriter(BytesIO())
    wanted = min(seconds(lambda: [theirs.write(content) for _ in range(50)]) for _ in range(3))
    rows = [{"x": np.arange(1280), "y": np.arange(1280)}] * 50
    assert min(seconds(lambda: write_examples(BytesIO(), rows)) for _ in range(3)) < wanted / 2
