"""The weights of a Hugging Face folder, file by file, read in chunks when they are asked for.

Safetensors are read, not mapped: what was read of a mapped file counts as memory until it is closed.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from course_lib.checkpoints.safe_load import safe_load
from course_lib.errors import CourseError
from course_lib.files import read_json, require_file

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
CHUNK = 1 << 22  # numbers
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2, "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
    "I64": torch.int64,
}  # fmt: skip
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)  # what a weight may be stored as
LEFTOVER = re.compile(r"\b(attn|attention)\.(masked_)?bias$|\brotary_emb\.inv_freq$")
INSTEAD = "get the model as model.safetensors, a format that holds tensors only (the Hub's space safetensors/convert makes it)"


@dataclass(frozen=True)
class Weight:
    """A tensor in a file. `chunks(counts)` yields its numbers in order, so many at a time; each chunk is lost with the next."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    chunks: Callable[[Sequence[int]], Iterator[Tensor]]

    def in_turn(self, most: int = CHUNK) -> Iterator[Tensor]:
        """All its numbers, at most so many at a time."""
        whole, rest = divmod(prod(self.shape), most)
        return self.chunks([most] * whole + [rest] * (rest > 0))


def files(folder: Path) -> list[Path]:
    """The files that hold the weights. Raises CourseError if there are none."""
    found = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if found is None:
        raise CourseError(f"{folder}: holds no weights; expected one of {', '.join(WEIGHTS)}")
    if found.suffix != ".json":
        return [found]
    places = read_json(found).get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
        raise CourseError(f"{found}: not an index of weight files, `weight_map` names none")
    return [require_file(folder / Path(name).name) for name in sorted(set(places.values()))]


def is_leftover(name: str) -> bool:
    """Whether a tensor is a constant that older transformers stored among the weights: a causal mask, its fill value, rotary frequencies."""
    return LEFTOVER.search(name) is not None


def require_float(path: Path, weight: Weight) -> None:
    """Raises CourseError for a weight in another number format than FLOATS."""
    if weight.dtype not in FLOATS:
        said, *allowed = (str(dtype).removeprefix("torch.") for dtype in (weight.dtype, *FLOATS))
        raise CourseError(f"{path}: {weight.name} is stored as {said}; allowed: {', '.join(allowed)}")


def weights(path: Path) -> list[Weight]:
    """The tensors of one file, leftover constants too. Raises CourseError for a damaged file."""
    if require_file(path).suffix != ".safetensors":
        try:
            tensors = safe_load(path)
        except CourseError as error:
            raise CourseError(f"{error}; {INSTEAD}") from error
        return [_given(name, tensor) for name, tensor in tensors.items() if isinstance(tensor, Tensor)]
    try:
        with safe_open(path, "pt"):  # checks the header: every offset within the file, no gaps
            pass
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (SafetensorError, OSError, ValueError) as error:
        raise CourseError(f"{path}: not a safetensors file, or cut short") from error
    return [_in_file(path, name, entry, 8 + length) for name, entry in header.items() if name != "__metadata__"]


def _given(name: str, tensor: Tensor) -> Weight:
    return Weight(
        name, tuple(tensor.shape), tensor.dtype, lambda counts: iter(torch.split(tensor.flatten(), list(counts)))
    )


def _in_file(path: Path, name: str, entry: dict[str, Any], start: int) -> Weight:
    dtype = DTYPES.get(entry["dtype"])
    if dtype is None:
        raise CourseError(f"{path}: {name} is stored as {entry['dtype']}; allowed: {', '.join(DTYPES)}")

    def chunks(counts: Sequence[int]) -> Iterator[Tensor]:
        memory = np.empty(max(counts) * dtype.itemsize, np.uint8)
        with open(path, "rb", buffering=0) as file:
            file.seek(start + entry["data_offsets"][0])
            for count in counts:
                place = memory[: count * dtype.itemsize]
                if file.readinto(place.data) != len(place):
                    raise CourseError(f"{path}: cut short at {name}")
                yield torch.from_numpy(place).view(dtype)

    return Weight(name, tuple(entry["shape"]), dtype, chunks)
