"""The .bin/.idx format: bytes worked out from its description, round trips, and what is refused."""

import pickle
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from course_lib.errors import CourseError, UsageError
from course_lib.pretrain.indexed import IndexedDataset, IndexedWriter, dtype_for, files_of, merge, repair, summarize
from hypothesis import given, settings
from hypothesis import strategies as st

U2, I4 = np.dtype("<u2"), np.dtype("<i4")


def write(prefix: Path, documents: list[list[int]], dtype: np.dtype = U2) -> Path:
    with IndexedWriter(prefix, dtype) as writer:
        for document in documents:
            writer.append(np.array(document, dtype), np.array([len(document)]))
    return prefix


def read(prefix: Path) -> list[list[int]]:
    return lists(IndexedDataset(prefix))


def lists(dataset: IndexedDataset) -> list[list[int]]:
    return [dataset[i].tolist() for i in range(len(dataset))]


def index_bytes(code: int, sizes: list[int], pointers: list[int], documents: list[int]) -> bytes:
    """An .idx as the description has it."""
    return (
        b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(sizes), len(documents))
        + struct.pack(f"<{len(sizes)}i", *sizes) + struct.pack(f"<{len(pointers)}q", *pointers)
        + struct.pack(f"<{len(documents)}q", *documents)
    )  # fmt: skip


def test_dtype_is_chosen_as_megatron_does() -> None:
    assert [dtype_for(size) for size in (50_000, 65_499, 65_500, 100_000)] == [U2, U2, I4, I4]


def test_three_documents_byte_by_byte(tmp_path: Path) -> None:
    data, index = files_of(write(tmp_path / "t", [[1, 2, 3], [4, 5], [6, 7, 8, 9]]))
    content = index.read_bytes()
    assert len(content) == 102
    assert content[:34].hex() == "4d4d494449445800000100000000000000" + "08" + "0300000000000000" + "0400000000000000"
    assert content == index_bytes(8, [3, 2, 4], [0, 6, 10], [0, 1, 2, 3])
    assert data.read_bytes() == struct.pack("<9H", *range(1, 10))


def test_an_empty_document_has_an_entry_and_no_size(tmp_path: Path) -> None:
    prefix = write(tmp_path / "t", [[], [70_000, 2], [], [3]], I4)
    assert files_of(prefix)[1].read_bytes() == index_bytes(4, [2, 1], [0, 8], [0, 0, 1, 1, 2])
    assert read(prefix) == [[70_000, 2], [3]]
    assert (summarize(prefix).documents, summarize(prefix).sequences, summarize(prefix).tokens) == (4, 2, 3)


DOCUMENTS = st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=8), max_size=12)


@given(documents=DOCUMENTS, cut=st.integers(0, 12), dtype=st.sampled_from([U2, I4]))
@settings(max_examples=30, deadline=None)
def test_what_is_written_in_any_portions_is_read_back(documents: list[list[int]], cut: int, dtype: np.dtype) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "t"
        with IndexedWriter(prefix, dtype) as writer:
            for part in (documents[:cut], documents[cut:]):
                ids = [each for document in part for each in document]
                writer.append(np.array(ids, dtype), np.array(list(map(len, part)), np.int64))
        assert read(prefix) == [each for each in documents if each]
        assert summarize(prefix).documents == len(documents)
        assert files_of(prefix)[1].read_bytes() == files_of(write(Path(folder) / "u", documents, dtype))[1].read_bytes()


def test_parts_of_a_sequence_and_pickling(tmp_path: Path) -> None:
    dataset = IndexedDataset(write(tmp_path / "t.v1", [[1, 2, 3], [4, 5, 6, 7]]))
    assert dataset.get(1, 1, 2).tolist() == [5, 6] and dataset.get(1, 2).tolist() == [6, 7]
    assert dataset.get(0, 3).tolist() == [] and len(dataset) == 2
    with pytest.raises(IndexError):
        dataset.get(1, 0, 5)
    stored = pickle.dumps(dataset)
    assert len(stored) < 500 and lists(pickle.loads(stored)) == [[1, 2, 3], [4, 5, 6, 7]]
    for name in ("t.v1", "t.v1.bin", "t.v1.idx"):
        assert len(IndexedDataset(tmp_path / name)) == 2
    with pytest.raises(ValueError):
        dataset[0][0] = 1


def test_merging_appends_sequences_and_shifts_documents(tmp_path: Path) -> None:
    first = write(tmp_path / "a", [[1], [], [2, 3]])
    sentences = index_bytes(8, [1, 2, 1], [0, 2, 6], [0, 2, 3])  # its first document has two sequences
    (tmp_path / "b.idx").write_bytes(sentences)
    (tmp_path / "b.bin").write_bytes(struct.pack("<4H", 4, 5, 6, 7))
    summary = merge([first, tmp_path / "b", first], tmp_path / "c")
    merged = [1, 2, 1, 2, 1, 1, 2], [0, 2, 6, 8, 12, 14, 16], [0, 1, 1, 2, 4, 5, 6, 6, 7]
    assert (tmp_path / "c.idx").read_bytes() == index_bytes(8, *merged)
    assert read(tmp_path / "c") == [[1], [2, 3], [4], [5, 6], [7], [1], [2, 3]]
    assert (summary.sequences, summary.documents, summary.tokens) == (7, 8, 10)


def test_merging_refuses_what_does_not_fit(tmp_path: Path) -> None:
    small, wide = write(tmp_path / "a", [[1]]), write(tmp_path / "b", [[1]], I4)
    with pytest.raises(CourseError, match="only one dtype"):
        merge([small, wide], tmp_path / "c")
    with pytest.raises(UsageError, match="is the input "):
        merge([small, small], tmp_path / "a.idx")
    assert read(small) == [[1]] and not (tmp_path / "c.idx").exists()


def miscounted(prefix: Path, documents: list[list[int]], eod: int) -> None:
    """What Megatron-DeepSpeed leaves with --append-eod: the token in the .bin, not in the sizes."""
    write(prefix, documents)
    files_of(prefix)[0].write_bytes(b"".join(np.array([*each, eod], U2).tobytes() for each in documents if each))


@pytest.mark.parametrize("empty", [[], [[]]])
def test_uncounted_end_of_document_tokens_are_told_and_repaired(tmp_path: Path, empty: list[list[int]]) -> None:
    documents = [[1, 2, 3], [4, 5], *empty, [6, 7, 8, 9]]
    miscounted(tmp_path / "t", documents, 99)
    summary = summarize(tmp_path / "t")
    assert summary.explanation and summary.tokens == 9 and summary.documents == len(documents)
    with pytest.raises(CourseError, match="--repair"):
        IndexedDataset(tmp_path / "t")
    assert repair(tmp_path / "t").tokens == 12
    assert read(tmp_path / "t") == [[1, 2, 3, 99], [4, 5, 99], [6, 7, 8, 9, 99]]
    write(tmp_path / "right", [[*each, 99] if each else [] for each in documents])
    assert (tmp_path / "t.idx").read_bytes() == (tmp_path / "right.idx").read_bytes()
    with pytest.raises(CourseError, match="nothing to repair"):
        repair(tmp_path / "t")


GOOD = index_bytes(8, [3, 2], [0, 6], [0, 1, 2])


@pytest.mark.parametrize(
    ("index", "data", "message"),
    [
        (GOOD[:-1], 10, "t.idx: truncated or broken"),
        (b"", 10, "t.idx"),
        (b"TNTIDX\0\0" + GOOD, 10, "t.idx: not a Megatron index"),
        (GOOD[:17] + b"\7" + GOOD[18:], 10, "t.idx: .*dtype code 7"),
        (GOOD[:18] + b"\xff" * 8 + GOOD[26:], 10, "t.idx: truncated"),
        (index_bytes(8, [3, 2], [0, 4], [0, 1, 2]), 10, "t.idx: broken"),
        (GOOD, 9, "t.bin: 9 bytes"),
        (GOOD, None, "t.bin: no such file"),
    ],
)
def test_broken_files_are_refused_with_what_is_wrong(
    tmp_path: Path, index: bytes, data: int | None, message: str
) -> None:
    (tmp_path / "t.idx").write_bytes(index)
    if data is not None:
        (tmp_path / "t.bin").write_bytes(bytes(data))
    for reader in (IndexedDataset, summarize, repair):
        with pytest.raises(CourseError, match=message) as caught:
            reader(tmp_path / "t")
        assert "\n" not in str(caught.value)


def test_an_error_leaves_the_earlier_product(tmp_path: Path) -> None:
    write(tmp_path / "t", [[1, 2]])
    with pytest.raises(CourseError), IndexedWriter(tmp_path / "t", U2) as writer:
        writer.append(np.array([5], U2), np.array([1]))
        raise CourseError("line 3 is bad")
    assert read(tmp_path / "t") == [[1, 2]] and len(list(tmp_path.iterdir())) == 2
