"""TFRecord files against bytes that TensorFlow 2.15 wrote, and against every kind of damage."""

from pathlib import Path

import numpy as np
import pytest
from course_lib.errors import CourseError
from course_lib.gptsan.tfrecord import read_examples, write_examples
from hypothesis import given, settings
from hypothesis import strategies as st

TENSORFLOW = bytes.fromhex(  # tf.io.TFRecordWriter: two Examples with the feature y, of [-1, 0, 300, 35999] and of []
    "1d00000000000000602fdf230a1b0a190a017912141a120a10ffffffffffffffffff0100ac029f9902cc3b3372"
    "0b000000000000008615f5040a090a070a017912021a000a64eee3"
)
VALUES = [-1, 0, 300, 35999]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lm_0000.tfrecord"
    path.write_bytes(TENSORFLOW)
    return path


def test_reads_what_tensorflow_wrote(file: Path) -> None:
    first, second = read_examples(file)
    assert first["y"].tolist() == VALUES and first["y"].dtype == np.int64 and second["y"].size == 0


def test_writes_what_tensorflow_writes(tmp_path: Path) -> None:
    with open(tmp_path / "ours", "wb") as out:
        write_examples(out, [{"y": np.array(VALUES)}])
    assert (tmp_path / "ours").read_bytes() == TENSORFLOW[: 29 + 16]


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.text(max_size=3), st.lists(st.integers(-(2**63), 2**63 - 1))), max_size=3))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, examples: list[dict[str, list[int]]]) -> None:
    path = tmp_path_factory.mktemp("round") / "a.tfrecord"
    with open(path, "wb") as out:
        write_examples(out, [{name: np.array(values, np.int64) for name, values in e.items()} for e in examples])
    assert [{name: values.tolist() for name, values in e.items()} for e in read_examples(path)] == examples


def test_every_changed_byte_is_noticed(file: Path) -> None:
    for position in range(len(TENSORFLOW)):
        damaged = bytearray(TENSORFLOW)
        damaged[position] ^= 1 << position % 8
        file.write_bytes(damaged)
        with pytest.raises(CourseError, match=rf"lm_0000.tfrecord, record {1 if position < 45 else 2}: "):
            list(read_examples(file))


def test_every_cut_is_noticed(file: Path) -> None:
    for size in set(range(1, len(TENSORFLOW))) - {45}:  # 45: between the records
        file.write_bytes(TENSORFLOW[:size])
        with pytest.raises(CourseError, match="truncated"):
            list(read_examples(file))


def test_a_record_of_something_else(file: Path) -> None:
    from tensorboard.summary.writer.record_writer import RecordWriter

    with open(file, "wb") as out:
        RecordWriter(out).write(b"no message")
    with pytest.raises(CourseError, match="record 1: damaged"):
        list(read_examples(file))
    with pytest.raises(CourseError, match="no such file"):
        list(read_examples(file / "missing"))
