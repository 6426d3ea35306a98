"""The search for repeats agrees with its definition, in slices of any size and with any number of workers."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from course_lib.corpus import repeats
from hypothesis import given, settings
from hypothesis import strategies as st

PERM, ROWS = 6, 2
TOP = 2**64 - 1


def column(path: Path, values: list[int]) -> Path:
    np.array(values, dtype=np.uint64).tofile(path)
    return path


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([0, 1, 2, TOP // 3, TOP // 2, TOP - 1, TOP]), max_size=40),
    st.randoms(use_true_random=False),
    st.sampled_from([1, 3, 1000]),
)
def test_exact_repeats_are_those_with_an_earlier_equal(values: list[int], chance, size: int) -> None:
    mask = [chance.random() < 0.7 for _ in values]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "SLICE", size)
        path = column(Path(folder, "column"), values)
        np.array(mask, dtype=np.bool_).tofile(Path(folder, "mask"))
        assert repeats.repeats(path).tolist() == [value in values[:at] for at, value in enumerate(values)]
        earlier = [[value for value, use in zip(values[:at], mask) if use] for at in range(len(values))]
        assert repeats.repeats(path, Path(folder, "mask")).tolist() == [
            use and value in before for value, use, before in zip(values, mask, earlier)
        ]


def near(folder: Path, rows: np.ndarray, needed: int) -> list[int]:
    bands = rows.reshape(len(rows), PERM // ROWS, ROWS)
    columns = []
    for band in range(PERM // ROWS):
        # A hash that is spread over the whole range, equal for equal bands.
        values = [hash(tuple(map(int, each))) % 2**64 for each in bands[:, band]]
        columns.append(column(folder / f"band-{band}", values))
    rows.astype(np.uint8).tofile(folder / "signatures")
    return repeats.near_repeats(columns, folder / "signatures", rows.shape, needed).tolist()


def by_definition(rows: np.ndarray, needed: int) -> list[int]:
    """The earliest document that agrees in a whole band and in `needed` values."""

    def resembles(one: np.ndarray, other: np.ndarray) -> bool:
        equal = one == other
        return bool(equal.reshape(-1, ROWS).all(1).any() and equal.sum() >= needed)

    return [next((at for at in range(number) if resembles(rows[at], row)), -1) for number, row in enumerate(rows)]


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(1, 3), st.sampled_from([1, 5, 1000]))
def test_near_repeats_are_those_of_the_definition(seed: int, documents: int, spread: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, spread + 1, (documents, PERM))
    for needed in (2, 4, 6):
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(repeats, "SLICE", size)
            patch.setattr(repeats, "PAIRS", 3)
            patch.setattr(repeats, "BLOCK", 7)
            assert near(Path(folder), rows, needed) == by_definition(rows, needed)
