"""Reader and writer for the weights in a Hugging Face folder, one tensor or one chunk of a tensor at a time.

Safetensors files are not memory-mapped, because pages of a mapped file count as used memory until it is closed.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from course_lib.checkpoints.safe_load import safe_load
from course_lib.checkpoints.torch_dtypes import FLOATS, SAFETENSORS, torch_name
from course_lib.errors import CourseError
from course_lib.files import read_json, require_file, write_json

NAME = "model.safetensors"
INDEX = f"{NAME}.index.json"
# A folder is read from the first of these files that it holds.
WEIGHTS = (NAME, INDEX, "pytorch_model.bin", "pytorch_model.bin.index.json")
CHUNK = 1 << 22  # elements
# Maximum bytes of weights per file in a new folder; while writing, up to this many bytes are held in memory.
SHARD = 2_000_000_000
LEFTOVER = re.compile(r"\b(attn|attention)\.(masked_)?bias$|\brotary_emb\.inv_freq$")


@dataclass(frozen=True)
class Weight:
    """A tensor in a weight file, read on demand.

    `chunks(counts)` yields the elements in order as flat tensors of `counts[0]`, `counts[1]`, … elements. Each chunk
    may overwrite the previous one.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    chunks: Callable[[Sequence[int]], Iterator[Tensor]]

    def contiguous(self) -> Tensor:
        """Return the whole tensor in new memory; DeepSpeed's lazy tensors have a method with the same name."""
        return next(self.chunks([prod(self.shape)])).view(self.shape)

    def in_turn(self, most: int = CHUNK) -> Iterator[Tensor]:
        """Yield all elements in order as flat tensors of at most `most` elements."""
        whole, rest = divmod(prod(self.shape), most)
        return self.chunks([most] * whole + [rest] * (rest > 0))


def files(folder: Path) -> list[Path]:
    """Return the weight files in a folder, sorted by name. Raises CourseError if there are none, or one is missing."""
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise CourseError(f"{folder}: holds no weights; expected one of {', '.join(WEIGHTS)}")
    if path.suffix != ".json":
        return [path]
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(f, str) for f in weight_map.values()):
        raise CourseError(f"{path}: not an index of weight files, `weight_map` names none")
    return [require_file(folder / Path(name).name) for name in sorted(set(weight_map.values()))]


def has_weights(folder: Path) -> bool:
    """Return whether a folder holds one of the files in WEIGHTS."""
    return any((folder / name).is_file() for name in WEIGHTS)


def is_leftover(name: str) -> bool:
    """Return whether a tensor is a constant of old transformers: a causal mask, its fill value, rotary frequencies."""
    return LEFTOVER.search(name) is not None


def differing(first: Path, second: Path) -> set[str]:
    """Return the names of the tensors in one folder that another folder has not, or with other values."""
    found, others = by_name(first), by_name(second)
    same = {n for n in found.keys() & others.keys() if torch.equal(found[n].contiguous(), others[n].contiguous())}
    return found.keys() - same


def unread(problem: str) -> str:
    """Return the message of an error about weights in a pickle, with what to do about it."""
    return (
        f"{problem}; get the model as model.safetensors, a format that holds tensors only "
        "(the Hub's space safetensors/convert makes it)"
    )


def require_float(path: Path, weight: Weight) -> None:
    """Raise CourseError if the dtype of a weight is not in FLOATS."""
    if weight.dtype not in FLOATS:
        stored, *allowed = map(torch_name, (weight.dtype, *FLOATS))
        raise CourseError(f"{path}: {weight.name} is stored as {stored}; allowed: {', '.join(allowed)}")


def require_finite(folder: Path, name: str, tensor: Tensor) -> None:
    """Raise CourseError if a tensor has NaN or infinity, which is also what its dtype makes of too large numbers."""
    # A sum is not finite if one of its terms is not, and needs no memory.
    if not torch.isfinite(tensor.detach().sum(dtype=torch.float32)):
        most = f"{torch.finfo(tensor.dtype).max:.5g} in {torch_name(tensor.dtype)}"
        raise CourseError(f"{folder}: {name} has values that are not finite (NaN, infinity, or above {most})")


def weights(path: Path) -> list[Weight]:
    """Return the tensors in one weight file. Raises CourseError if the file is missing or damaged."""
    if require_file(path).suffix != ".safetensors":
        try:
            tensors = safe_load(path)
        except CourseError as error:
            raise CourseError(unread(str(error))) from error
        return [
            Weight(name, tuple(value.shape), value.dtype, partial(_split, value))
            for name, value in tensors.items()
            if isinstance(value, Tensor)
        ]
    try:
        # safe_open checks the header: every offset must lie within the file, without gaps.
        with safe_open(path, "pt"):
            pass
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (SafetensorError, OSError, ValueError) as error:
        raise CourseError(f"{path}: not a safetensors file, or cut short") from error
    return [_in_file(path, name, entry, 8 + length) for name, entry in header.items() if name != "__metadata__"]


def by_name(folder: Path) -> dict[str, Weight]:
    """Return the weights in a folder by name, without the constants of `is_leftover`."""
    every = (weight for path in files(folder) for weight in weights(path))
    return {weight.name: weight for weight in every if not is_leftover(weight.name)}


def write(tensors: Iterable[tuple[str, Tensor]], folder: Path, shard: int) -> int:
    """Write tensors as safetensors files of at most `shard` bytes, with an index; return their elements."""
    parts: list[list[str]] = []
    waiting: dict[str, Tensor] = {}
    held = size = elements = 0

    def flush() -> None:
        parts.append(list(waiting))
        path = folder / f"{len(parts)}.part"
        save_file(waiting, path, metadata={"format": "pt"})
        # safetensors creates files that only the owner can read.
        path.chmod(0o644)
        waiting.clear()

    for name, value in tensors:
        if waiting and held + value.nbytes > shard:
            flush()
            held = 0
        # safetensors rejects tensors that share memory, so each one is copied.
        waiting[name] = value.detach().clone(memory_format=torch.contiguous_format)
        held, size, elements = held + value.nbytes, size + value.nbytes, elements + value.numel()
    flush()
    if len(parts) == 1:
        (folder / "1.part").rename(folder / NAME)
        return elements
    weight_map: dict[str, str] = {}
    for number, names in enumerate(parts, start=1):
        file = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        (folder / f"{number}.part").rename(folder / file)
        weight_map |= dict.fromkeys(names, file)
    write_json(folder / INDEX, {"metadata": {"total_size": size}, "weight_map": weight_map})
    return elements


def _split(tensor: Tensor, counts: Sequence[int]) -> Iterator[Tensor]:
    return iter(torch.split(tensor.flatten(), list(counts)))


def _in_file(path: Path, name: str, entry: dict[str, Any], start: int) -> Weight:
    """Return a Weight for an entry in the header of a safetensors file, whose data begins at the byte `start`."""
    dtype = SAFETENSORS.get(entry["dtype"])
    if dtype is None:
        raise CourseError(f"{path}: {name} is stored as {entry['dtype']}; allowed: {', '.join(SAFETENSORS)}")

    def chunks(counts: Sequence[int]) -> Iterator[Tensor]:
        # Allocate at least one element, because torch cannot view an empty byte array as another dtype.
        memory = np.empty(max(1, max(counts, default=0)) * dtype.itemsize, np.uint8)
        elements = torch.from_numpy(memory).view(dtype)
        with open(path, "rb", buffering=0) as file:
            file.seek(start + entry["data_offsets"][0])
            for count in counts:
                chunk = memory[: count * dtype.itemsize]
                if file.readinto(chunk.data) != len(chunk):
                    raise CourseError(f"{path}: cut short at {name}")
                yield elements[:count]

    return Weight(name, tuple(entry["shape"]), dtype, chunks)
