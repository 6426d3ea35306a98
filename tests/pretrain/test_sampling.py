"""GPT sampling against megatron-core 0.9.0: the literals below are what its GPTDataset builds for the same sizes and settings."""

import hashlib
import multiprocessing
import os
import pickle
import re
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from course_lib.errors import CourseError, UsageError
from course_lib.pretrain import sampling
from course_lib.pretrain.data import spread
from course_lib.pretrain.indexed import IndexedDataset, IndexedWriter, dtype_for
from course_lib.pretrain.sampling import Epochs, GptDataset, epochs_needed, sample_index, split_corpora, split_documents
from hypothesis import given
from hypothesis import strategies as st

SIZES = [5, 0, 12, 3, 9, 1, 0, 14, 9]  # 53 tokens


class Counting:
    """A corpus in memory whose tokens are their positions: sequence 0 is 0 1 2 3 4, sequence 2 is 5 6 …"""

    def __init__(self, sizes: Any, first: int = 0) -> None:
        self.sizes = np.asarray(sizes, np.int32)
        self.starts = first + np.cumsum(self.sizes) - self.sizes

    def get(self, i: int, offset: int, length: int) -> Any:
        assert 0 <= offset <= offset + length <= self.sizes[i]
        return np.arange(length) + self.starts[i] + offset


def dataset(sizes: Any, seq_length: int = 7, samples: int | None = None, seed: int = 1234, **more: Any) -> GptDataset:
    documents = more.pop("documents", range(len(sizes)))
    return GptDataset(Counting(sizes), documents, seq_length, samples, seed, **more)


def digest(*arrays: Any) -> str:
    return hashlib.sha256(b"".join(np.asarray(array, "<i8").tobytes() for array in arrays)).hexdigest()[:32]


def texts_of(data: GptDataset) -> str:
    return digest(*(data[at] for at in range(len(data))))


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.replace(",", " ").split()]


# fmt: off
MEGATRON: list[tuple[int | None, int, bool, str, str, str]] = [  # sizes SIZES, sequence length 7, seed 1234: samples, epochs, separate, documents, rows, shuffle
    (None, 1, False, "8 2 1 0 7 4 5 6 3", "0,0 0,7 1,5 3,0 4,2 4,9 5,2 6,0", "5 0 3 4 2 6 1"),
    (8, 2, True, "8 2 1 0 7 4 5 6 3 6 4 0 5 3 2 8 7 1", "0,0 0,7 1,5 3,0 4,2 4,9 5,2 6,0 10,3 11,1 13,2 14,6 15,1 15,8 16,6 16,13", "5 1 3 4 0 6 2 12 13 11 10 14 9 8 7"),
    (15, 2, False, "2 3 8 1 4 5 0 2 7 7 1 0 8 4 3 5 6 6", "0,0 0,7 1,2 2,6 4,4 6,1 7,3 7,10 8,5 8,12 9,5 9,12 12,0 12,7 13,5 15,0", "7 10 4 1 12 8 3 9 14 13 5 11 0 2 6"),
    (23, 4, True, "0 7 4 3 7 2 4 1 5 5 0 8 5 6 1 7 4 2 0 8 8 2 3 3 6 1 6 4 7 1 0 5 3 8 6 2", "0,0 1,2 1,9 2,2 3,0 4,4 4,11 5,4 5,11 6,6 10,2 11,4 15,1 15,8 16,1 16,8 17,6 18,1 19,3 20,1 20,8 21,6 22,1 27,2 28,0 28,7 30,0 32,1 33,5 35,3 35,10", "8 19 14 9 6 0 4 5 13 18 7 15 17 10 21 20 11 1 12 2 3 16 24 25 22 28 26 23 27 29"),
    (30, 4, False, "8 8 4 1 4 4 5 0 2 0 7 3 1 6 2 7 1 3 0 5 2 3 5 7 6 4 7 2 8 0 5 8 6 6 3 1", "0,0 0,7 1,5 2,3 4,1 4,8 5,6 7,3 8,5 9,0 10,2 10,9 11,2 14,6 15,1 15,8 17,1 19,0 20,6 21,1 23,4 23,11 25,4 26,2 26,9 27,2 27,9 28,4 29,2 31,3 34,1", "3 16 1 2 6 27 25 26 8 22 21 4 24 28 9 15 18 23 5 12 0 20 13 17 29 11 10 7 19 14"),
    (31, 5, True, "8 8 4 1 4 4 5 0 2 0 7 3 1 6 2 7 1 3 0 5 2 3 5 7 6 4 7 2 8 0 5 8 6 6 3 1 6 1 0 5 8 2 4 7 3", "0,0 0,7 1,5 2,3 4,1 4,8 5,6 7,3 8,5 9,0 10,2 10,9 11,2 14,6 15,1 15,8 17,1 19,0 20,6 21,1 23,4 23,11 25,4 26,2 26,9 27,2 27,9 28,4 29,2 31,3 34,1 39,0 40,6 41,4 41,11 42,6 43,4 43,11", "7 26 18 11 4 14 21 22 2 1 3 10 19 15 29 6 25 8 9 16 28 27 24 17 5 12 0 20 13 23 31 33 30 35 32 34 36"),
    (37, 5, False, "3 7 8 7 8 5 4 3 1 8 4 1 8 2 5 0 0 2 4 0 2 7 3 6 2 6 6 5 0 4 4 0 7 5 1 7 1 3 8 5 6 6 3 2 1", "0,0 1,4 1,11 2,4 3,2 3,9 4,2 5,0 6,6 9,1 9,8 10,6 12,4 13,2 13,9 15,3 17,0 17,7 18,2 19,0 20,2 20,9 21,4 21,11 24,1 24,8 28,2 29,4 30,2 31,0 32,2 32,9 35,1 35,8 37,1 38,5 42,2 43,6", "1 36 0 22 18 10 11 19 24 3 4 7 26 27 31 2 14 30 15 21 6 33 8 9 16 35 20 28 25 34 17 29 5 12 32 13 23"),
]
LARGE = [  # 3000 documents, sequence length 128, seed 42: samples, epochs, separate, digest of the indices, digest of all samples
    (2304, 1, False, "fba7e2143eafe1e78783b4a1b535860e", "8b7c101586e0c3785ce5d016530af721"),
    (2995, 2, True, "af38efb6c01b5e6bb1f9d90cd7b90208", "64d64678db13cca8af50f4840e9fa20d"),
    (9908, 5, True, "64b17f7efd3e3439dccb4e2780d593c8", "6f32f63a563efa7e62b6d5966aef26fd"),
]
SPLIT = [  # the same documents, split 949,50,1, seed 7: documents, requested, got, the two digests
    (range(0, 2847), 5000, 6549, "646aaa1eb3607157fad3af16366a7f69", "17f28af190096e17b2de411c70f6ed2f"),
    (range(2847, 2997), 200, 236, "2b1f8c63aa6c3c69b759de813b1b9956", "e2b7ab82fa5617602e4bf5d4fb808287"),
    (range(2997, 3000), 30, 32, "0c49fb4fe97ee99b893e6498cd955fd7", "d738b3381b2f269831494effc0a9017c"),
]
# fmt: on


@pytest.fixture(scope="module")
def large() -> Counting:
    return Counting(np.random.RandomState(3).randint(0, 200, 3000))


@pytest.mark.parametrize("case", MEGATRON, ids=lambda case: f"{case[1]}-{case[2]}")
def test_indices_are_those_of_megatron(case: tuple[Any, ...]) -> None:
    samples, epochs, separate, *indices = case
    data = dataset(SIZES, samples=samples)
    assert (data.epochs, data.separate) == (epochs, separate)
    assert [array.ravel().tolist() for array in data.indices] == list(map(numbers, indices))
    assert [array.dtype for array in data.indices] == [np.int32, np.int64, np.uint32]
    assert len(data) == len(data.indices.shuffle) >= (samples or 1)


@pytest.mark.parametrize(("samples", "epochs", "separate", "indices", "texts"), LARGE)
def test_large_indices_and_samples_are_those_of_megatron(
    large: Counting, samples: int, epochs: int, separate: bool, indices: str, texts: str
) -> None:
    data = GptDataset(large, range(3000), 128, samples, 42)
    assert (data.epochs, data.separate) == (epochs, separate)
    assert digest(*data.indices) == indices
    assert texts_of(data) == texts


def test_split_datasets_are_those_of_megatron(large: Counting) -> None:
    assert split_documents("949,50,1", 3000) == tuple(documents for documents, *_ in SPLIT)
    for documents, samples, got, indices, texts in SPLIT:
        data = GptDataset(large, documents, 128, samples, 7)
        assert (len(data), digest(*data.indices), texts_of(data)) == (got, indices, texts)


@pytest.mark.parametrize(
    ("sequences", "ends"),
    [(10, (9, 10, 10)), (100, (95, 100, 100)), (500, (474, 500, 500)), (1000, (949, 999, 1000)), (1500, (1424, 1498, 1500)),
     (7777, (7380, 7769, 7777)), (1, (1, 1, 1)), (0, (0, 0, 0))],
)  # fmt: skip
def test_split_boundaries(sequences: int, ends: tuple[int, int, int]) -> None:
    first, second, third = ends
    expected = (range(first), range(first, second), range(second, third))
    assert split_documents("949,50,1", sequences) == split_documents("949 / 50/1", sequences) == expected


@pytest.mark.parametrize("split", ["", "a,b", "-1,2", "0,0,0", "1,1,1,1", "nan"])
def test_a_split_that_is_none_is_named(split: str) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(split))):
        split_documents(split, 100)


@given(tokens=st.integers(2, 300), seq_length=st.integers(1, 40), samples=st.integers(1, 300))
def test_epochs_are_the_least_that_suffice(tokens: int, seq_length: int, samples: int) -> None:
    epochs = epochs_needed(tokens, seq_length, samples)
    assert (epochs * tokens - 1) // seq_length >= samples
    assert epochs == 1 or ((epochs - 1) * tokens - 1) // seq_length < samples
    assert epochs_needed(tokens, seq_length, None) == 1


def walk(sizes: list[int], seq_length: int) -> list[list[int]]:
    """Sample index by the description: take seq_length + 1 tokens, note where the last one lies, begin there again."""
    rows = [[0, 0]]
    document, offset = 0, 0
    for _ in range((sum(sizes) - 1) // seq_length):
        wanted = seq_length + 1
        while sizes[document] - offset < wanted:
            wanted -= sizes[document] - offset
            document, offset = document + 1, 0
        offset += wanted - 1
        rows.append([document, offset])
    return rows


@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=40),
    seq_length=st.integers(1, 30),
    block=st.sampled_from([1, 2, 3, 7, 1 << 20]),
)
def test_sample_index_equals_the_walk_over_documents(sizes: list[int], seq_length: int, block: int) -> None:
    if sum(sizes) == 0:
        sizes = [*sizes, 1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "BLOCK", block)
        order = np.random.RandomState(len(sizes)).permutation(len(sizes)).astype(np.int32)
        rows = sample_index(np.asarray(sizes, np.int32), order, seq_length, sum(sizes))
    assert rows.tolist() == walk([sizes[document] for document in order], seq_length)


def test_offsets_beyond_32_bits() -> None:
    sizes = np.full(5, 2_000_000_000, np.int32)
    rows = sample_index(sizes, np.arange(5, dtype=np.int32), 1 << 30, 10_000_000_000)
    assert rows[-1].tolist() == [4, 9 * (1 << 30) - 8_000_000_000]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(1, 12), st.integers(1, 60), st.integers(0, 9))
def test_samples_follow_one_another_by_one_token(sizes: list[int], seq_length: int, samples: int, seed: int) -> None:
    if sum(sizes) <= seq_length:
        return
    data = dataset(sizes, seq_length, samples, seed)
    stream = np.concatenate([data.indexed.get(int(i), 0, sizes[i]) for i in data.indices.documents])
    by_position = {int(position): data[at] for at, position in enumerate(data.indices.shuffle)}
    assert sorted(by_position) == list(range(len(data)))
    for position, sample in by_position.items():
        assert sample.dtype == np.int64
        assert sample.tolist() == stream[position * seq_length : (position + 1) * seq_length + 1].tolist()


@pytest.mark.parametrize("sizes", [[], [0, 0], [3, 4]])
def test_too_few_tokens_are_refused(sizes: list[int], tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="data.seq_length"):
        dataset(sizes, 7, 3, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
    assert len(dataset([*sizes, 9], 7)) >= 1


@given(st.lists(st.integers(1, 30), min_size=1, max_size=200), st.integers(1, 4000))
def test_a_spread_sample_is_evenly_spaced_and_about_as_large_as_wanted(sizes: list[int], wanted: int) -> None:
    corpus = Counting(np.array(sizes, np.int32))
    starts = np.cumsum([0, *sizes])
    step = 1 if sum(sizes) <= wanted else -(-sum(sizes) // wanted)
    expected = [list(range(starts[i], starts[i] + min(sizes[i], wanted))) for i in range(0, len(sizes), step)]
    assert [ids.tolist() for ids in spread(corpus, wanted)] == expected
    # As many documents as the share of the tokens, and always one.
    assert len(expected) <= len(sizes) * wanted / sum(sizes) + 1 or step == 1


def test_without_end_each_epoch_has_another_order() -> None:
    sizes = [5, 9, 13, 4, 11] * 4
    corpus = Counting(sizes)
    samples = Epochs(corpus, range(20), 7, 2**32 - 1)
    each = len(GptDataset(corpus, range(20), 7, None, 0))
    read = [samples[at].tolist() for at in range(3 * each)]
    for epoch, seed in enumerate((2**32 - 1, 0, 1)):
        alone = GptDataset(corpus, range(20), 7, None, seed)
        assert read[epoch * each : (epoch + 1) * each] == [alone[at].tolist() for at in range(each)]
    assert read[:each] != read[each : 2 * each]
    # A resumed run begins anywhere.
    assert Epochs(corpus, range(20), 7, 2**32 - 1)[2 * each + 1].tolist() == read[2 * each + 1]
    assert len(samples) > 10**18


def test_several_corpora_are_split_each_by_itself() -> None:
    sizes = [np.arange(10, 20), np.array([], int), np.full(4, 3)]
    corpora = [Counting(sizes[0]), Counting(sizes[1]), Counting(sizes[2], first=1000)]
    train, validation, test = split_corpora(corpora, "8,1,1")
    assert train.sizes.tolist() == [*range(10, 18), 3, 3, 3] and train.sizes.dtype == np.int32
    assert validation.sizes.tolist() == [18, 3] and test.sizes.tolist() == [19]
    assert [int(train.get(i, 1, 1)[0]) for i in (0, 7, 8, 10)] == [1, 92, 1001, 1007]
    assert validation.get(1, 0, 3).tolist() == [1009, 1010, 1011]
    data = GptDataset(train, range(11), 5, None, 0)
    seen = np.concatenate([data[at] for at in range(len(data))])
    assert set(seen.tolist()) <= {*range(10 * 8 + 28), *range(1000, 1009)}


def test_token_files_are_sampled(tmp_path: Path) -> None:
    corpus = Counting(np.arange(3000) % 50 + 1)
    with IndexedWriter(tmp_path / "tokens", dtype_for(100_000)) as writer:
        writer.append(np.arange(corpus.sizes.sum(), dtype=np.int32), corpus.sizes)
    read = IndexedDataset(tmp_path / "tokens")
    settings = (range(500, 2900), 64, 2000, 11)
    from_files = GptDataset(read, *settings, tmp_path / "cache")
    assert texts_of(from_files) == texts_of(GptDataset(corpus, *settings))
    train, *_ = split_corpora([read, read], "1")
    data = GptDataset(train, range(6000), 64, None, 11, tmp_path / "cache")
    packed = pickle.dumps(data)
    assert len(packed) < 1000  # names of files, no tokens and no indices
    assert texts_of(pickle.loads(packed)) == texts_of(data)


def forbid(*_: Any) -> Any:
    raise AssertionError("built again")


def test_the_cache_is_read_back_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, first = dataset(SIZES, samples=20), dataset(SIZES, samples=20, cache=tmp_path)
    monkeypatch.setattr(sampling, "document_index", forbid)
    again = dataset(SIZES, samples=20, cache=tmp_path)
    assert texts_of(plain) == texts_of(first) == texts_of(again)
    assert all(isinstance(array.base, np.memmap) for array in again.indices)
    assert [array.dtype for array in again.indices] == [array.dtype for array in plain.indices]
    assert not [*tmp_path.glob(".*.tmp")]


@pytest.mark.parametrize(
    "change",
    [{"sizes": [6, *SIZES[1:]]}, {"sizes": [5, 1, 11, *SIZES[3:]]}, {"seq_length": 8}, {"samples": 36}, {"seed": 1}, {"documents": range(8)}, {"documents": range(1, 9)}],
    ids=str,
)  # fmt: skip
def test_whatever_matters_is_in_the_key(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same: dict[str, Any] = {"sizes": SIZES, "samples": 20, "cache": tmp_path}
    dataset(**same)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "document_index", forbid)
        dataset(**same)
        with pytest.raises(AssertionError, match="built again"):
            dataset(**(same | change))
    changed = dataset(**(same | change))
    assert texts_of(changed) == texts_of(dataset(**(same | change | {"cache": None})))


@pytest.mark.parametrize("name", ["documents", "samples", "shuffle"])
def test_an_incomplete_cache_is_built_again(name: str, tmp_path: Path) -> None:
    whole = texts_of(dataset(SIZES, samples=20, cache=tmp_path))
    (path,) = tmp_path.glob(f"*{name}.npy")
    path.unlink()
    assert texts_of(dataset(SIZES, samples=20, cache=tmp_path)) == whole and path.is_file()


def build_slowly(folder: Path, together: Any) -> None:
    """What a rank does; leaves a file for each building, and the digest of what it got."""
    quick = sampling.document_index

    def slow(*arguments: Any) -> Any:
        (folder / f"built-{os.getpid()}").touch()
        time.sleep(0.3)
        return quick(*arguments)

    pytest.MonkeyPatch().setattr(sampling, "document_index", slow)
    together.wait()
    data = dataset(SIZES, samples=20, cache=folder / "cache")
    (folder / f"got-{os.getpid()}").write_text(texts_of(data))


def test_of_two_processes_one_builds(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(2)
    ranks = [context.Process(target=build_slowly, args=(tmp_path, together)) for _ in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(30)
    assert [rank.exitcode for rank in ranks] == [0, 0]
    assert len([*tmp_path.glob("built-*")]) == 1
    got = [path.read_text() for path in tmp_path.glob("got-*")]
    assert got == [texts_of(dataset(SIZES, samples=20))] * 2


def test_memory_stays_near_what_is_returned() -> None:
    sizes = np.full(1_000_000, 3, np.int32)
    order = np.tile(np.arange(1_000_000, dtype=np.int32), 4)
    tracemalloc.start()
    rows = sample_index(sizes, order, 16, 12_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) == 750_000
    assert peak < rows.nbytes + 60 * sampling.BLOCK  # not by the number of epochs
