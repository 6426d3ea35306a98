"""Reads the weights of a Hugging Face folder file by file, in chunks, on demand.

Safetensors files are read, not memory-mapped, because pages of a mapped file count as used memory until it is closed.
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
CHUNK = 1 << 22  # elements
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "BOOL": torch.bool, "U8": torch.uint8,
    "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64,
}  # fmt: skip
# The number formats in which a weight may be stored.
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
LEFTOVER = re.compile(r"\b(attn|attention)\.(masked_)?bias$|\brotary_emb\.inv_freq$")
INSTEAD = (
    "get the model as model.safetensors, a format that holds tensors only "
    "(the Hub's space safetensors/convert makes it)"
)


@dataclass(frozen=True)
class Weight:
    """One tensor of a weight file, read on demand.

    `chunks(counts)` yields the elements in order as flat tensors of `counts[0]`, `counts[1]`, … elements. The next
    chunk may overwrite the previous one.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    chunks: Callable[[Sequence[int]], Iterator[Tensor]]

    def in_turn(self, most: int = CHUNK) -> Iterator[Tensor]:
        """Yields all elements in order as flat tensors of at most `most` elements."""
        whole, rest = divmod(prod(self.shape), most)
        return self.chunks([most] * whole + [rest] * (rest > 0))


def files(folder: Path) -> list[Path]:
    """The weight files of a folder, sorted by name. Raises CourseError if there are none."""
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise CourseError(f"{folder}: holds no weights; expected one of {', '.join(WEIGHTS)}")
    if path.suffix != ".json":
        return [path]
    weight_map = read_json(path).get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(name, str) for name in weight_map.values())
    ):
        raise CourseError(f"{path}: not an index of weight files, `weight_map` names none")
    return [require_file(folder / Path(name).name) for name in sorted(set(weight_map.values()))]


def is_leftover(name: str) -> bool:
    """Whether a tensor is a constant that old versions of transformers stored with the weights.

    These are the causal mask, its fill value and the rotary frequencies.
    """
    return LEFTOVER.search(name) is not None


def require_float(path: Path, weight: Weight) -> None:
    """Raises CourseError if the number format of a weight is not in FLOATS."""
    if weight.dtype not in FLOATS:
        stored, *allowed = (str(dtype).removeprefix("torch.") for dtype in (weight.dtype, *FLOATS))
        raise CourseError(f"{path}: {weight.name} is stored as {stored}; allowed: {', '.join(allowed)}")


def weights(path: Path) -> list[Weight]:
    """The tensors of one weight file, constants of old versions included. Raises CourseError for a damaged file."""
    if require_file(path).suffix != ".safetensors":
        try:
            tensors = safe_load(path)
        except CourseError as error:
            raise CourseError(f"{error}; {INSTEAD}") from error
        return [_given(name, tensor) for name, tensor in tensors.items() if isinstance(tensor, Tensor)]
    try:
        # safe_open checks the header: every offset lies within the file, and there are no gaps.
        with safe_open(path, "pt"):
            pass
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (SafetensorError, OSError, ValueError) as error:
        raise CourseError(f"{path}: not a safetensors file, or cut short") from error
    return [_in_file(path, name, entry, 8 + length) for name, entry in header.items() if name != "__metadata__"]


def _given(name: str, tensor: Tensor) -> Weight:
    """A Weight whose elements are already in memory."""
    return Weight(
        name, tuple(tensor.shape), tensor.dtype, lambda counts: iter(torch.split(tensor.flatten(), list(counts)))
    )


def _in_file(path: Path, name: str, entry: dict[str, Any], start: int) -> Weight:
    """A Weight in a safetensors file.

    `entry` is its entry in the file's header; `start` is the offset of the data section [bytes].
    """
    dtype = DTYPES.get(entry["dtype"])
    if dtype is None:
        raise CourseError(f"{path}: {name} is stored as {entry['dtype']}; allowed: {', '.join(DTYPES)}")

    def chunks(counts: Sequence[int]) -> Iterator[Tensor]:
        memory = np.empty(max(counts) * dtype.itemsize, np.uint8)
        with open(path, "rb", buffering=0) as file:
            file.seek(start + entry["data_offsets"][0])
            for count in counts:
                chunk = memory[: count * dtype.itemsize]
                if file.readinto(chunk.data) != len(chunk):
                    raise CourseError(f"{path}: cut short at {name}")
                yield torch.from_numpy(chunk).view(dtype)

    return Weight(name, tuple(entry["shape"]), dtype, chunks)
