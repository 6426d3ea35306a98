"""Encoded examples on disk: a folder with four .npy files and encoding.json (settings, counts, tokenizer checksums).

x, y        int32 [examples, num_context]    input tokens and target tokens; -1 in y: no target at this position
i           int32 [examples]                 class for the spout, or index of the example
document    int32 [examples]                 index of the document that the example comes from
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from course_lib.errors import CourseError, UsageError
from course_lib.files import read_record, require_file

# Arrays that a training sample contains.
FEATURES = ("x", "y", "i")
ARRAYS = (*FEATURES, "document")
REPORT = "encoding.json"
DTYPE = np.dtype("<i4")

Array = npt.NDArray[Any]


def array_shapes(examples: int, num_context: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array, by name."""
    return {name: (examples, num_context) if name in ("x", "y") else (examples,) for name in ARRAYS}


class ExampleWriter(AbstractContextManager["ExampleWriter"]):
    """Writer that appends examples to the .npy files, whose headers leave space for the number known at the end."""

    def __init__(self, folder: Path, context: int) -> None:
        self.rows, self._context = 0, context
        self._files = {name: open(folder / f"{name}.npy", "wb") for name in ARRAYS}  # noqa: SIM115
        self._headers()

    def append(self, **columns: Array) -> None:
        """Append examples, given as arrays x, y, i and document of equal length."""
        for name, file in self._files.items():
            file.write(np.ascontiguousarray(columns[name], DTYPE).data)
        self.rows += len(columns["x"])

    def __exit__(self, *error: Any) -> None:
        self._headers()
        for file in self._files.values():
            file.close()

    def _headers(self) -> None:
        for name, shape in array_shapes(self.rows, self._context).items():
            self._files[name].seek(0)
            header = {"descr": DTYPE.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(self._files[name], header)


class Examples:
    """Memory-mapped dataset of the examples in a folder, or of those selected by `rows`."""

    def __init__(self, folder: Path, rows: npt.NDArray[np.int64] | None = None) -> None:
        if not (folder / REPORT).is_file():
            raise CourseError(f"{folder}: no encoded examples: {REPORT} is missing (`course gptsan encode` writes it)")
        numbers = {"examples": int, "num_context": int, "largest_id": int}
        self.folder, self.report = folder, read_record(folder / REPORT, numbers, {"classes": dict})
        if "classes" not in self.report:
            raise CourseError(f"{folder / REPORT}: lacks classes")
        shapes = array_shapes(self.report["examples"], self.report["num_context"])
        self.arrays = {name: _open(folder / f"{name}.npy", shape) for name, shape in shapes.items()}
        self.rows = np.arange(self.report["examples"]) if rows is None else rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def tokens_per_example(self) -> float:
        """The mean number of tokens in an example, without padding."""
        examples: int = self.report["examples"]
        tokens: int = self.report.get("tokens", examples * self.report["num_context"])
        return tokens / examples

    def __getitem__(self, index: int) -> dict[str, npt.NDArray[np.int64]]:
        row = self.rows[index]
        return {name: np.array(self.arrays[name][row], np.int64) for name in FEATURES}

    def __iter__(self) -> Iterator[dict[str, npt.NDArray[np.int64]]]:
        return map(self.__getitem__, range(len(self)))

    def check(self, vocab_size: int, d_spout: int | None = None) -> None:
        """Check that a model can be trained on the examples. Without class labels or a spout, any `i` is allowed."""
        if self.report["largest_id"] >= vocab_size:
            raise UsageError(
                f"{self.folder}: has token {self.report['largest_id']}, but the model's vocab_size is {vocab_size}; "
                "encode with the model's own tokenizer"
            )
        largest = max(map(int, self.report["classes"] or ()), default=0)
        if d_spout is not None and largest >= d_spout:
            raise UsageError(
                f"{self.folder}: has class {largest}, but the model's d_spout is {d_spout}: "
                f"classes are 0 to {d_spout - 1}"
            )

    def split(self, held_out: float, seed: int) -> tuple["Examples", "Examples"]:
        """Split the documents into a training set and a held-out set; their examples stay in folder order.

        No document has examples in both sets, because the rest of a document is easier to predict for a model that
        was trained on its beginning. Only if a class has a single document are its examples split instead. `held_out`
        is the fraction of each class's documents to hold out; unless it is 0, at least one of two or more.
        """
        labels = self.arrays["i"][self.rows] if self.report["classes"] else np.zeros(len(self), DTYPE)
        documents = self.arrays["document"][self.rows]
        rng, is_held_out = np.random.default_rng(seed), np.zeros(len(self), bool)
        for label in np.unique(labels) if held_out else ():
            members = np.flatnonzero(labels == label)
            groups = documents[members]
            if len(np.unique(groups)) == 1:
                groups = members
            units = rng.permutation(np.unique(groups))
            count = min(max(round(held_out * len(units)), 1), len(units) - 1)
            is_held_out[members] = np.isin(groups, units[:count])
        return Examples(self.folder, self.rows[~is_held_out]), Examples(self.folder, self.rows[is_held_out])


def _open(path: Path, shape: tuple[int, ...]) -> Array:
    try:
        array: Array = np.load(require_file(path), mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise CourseError(f"{path}: not a complete .npy file: {error}") from None
    if array.shape != shape or array.dtype != DTYPE:
        raise CourseError(f"{path}: {array.dtype} {array.shape}, but {REPORT} says {DTYPE} {shape}")
    return array
