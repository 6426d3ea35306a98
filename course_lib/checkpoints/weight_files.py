"""Reader and writer for the weights in a Hugging Face folder, in safetensors files or pickles.

Tensors are memory-mapped: their bytes are read when they are used.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from course_lib.checkpoints.safe_load import safe_load
from course_lib.checkpoints.torch_dtypes import FLOATS, torch_name
from course_lib.errors import CourseError
from course_lib.files import read_json, require_file, write_json

NAME = "model.safetensors"
INDEX = f"{NAME}.index.json"
# A folder is read from the first of these files that it holds.
WEIGHTS = (NAME, INDEX, "pytorch_model.bin", "pytorch_model.bin.index.json")
# Maximum bytes of weights per file in a new folder; while writing, up to this many bytes are in memory.
SHARD = 2_000_000_000
LEFTOVER = re.compile(r"\b(attn|attention)\.(masked_)?bias$|\brotary_emb\.inv_freq$")


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


def is_leftover(name: str) -> bool:
    """Return whether a tensor is a constant of old transformers: a causal mask, its fill value, rotary frequencies."""
    return LEFTOVER.search(name) is not None


def differing(first: Path, second: Path) -> set[str]:
    """Return the names of the tensors in one folder that another folder has not, or with other values."""
    found, others = by_name(first), by_name(second)
    return {name for name in found if name not in others or not torch.equal(found[name], others[name])}


def unread(problem: str) -> str:
    """Return the message of an error about weights in a pickle, with what to do about it."""
    return (
        f"{problem}; get the model as model.safetensors, a format that holds tensors only "
        "(the Hub's space safetensors/convert makes it)"
    )


def require_float(path: Path, name: str, tensor: Tensor) -> None:
    """Raise CourseError if the dtype of a weight is not in FLOATS."""
    if tensor.dtype not in FLOATS:
        stored, *allowed = map(torch_name, (tensor.dtype, *FLOATS))
        raise CourseError(f"{path}: {name} is stored as {stored}; allowed: {', '.join(allowed)}")


def require_finite(folder: Path, name: str, tensor: Tensor) -> None:
    """Raise CourseError if a tensor has NaN or infinity, which is also what its dtype makes of too large numbers."""
    if not _is_finite(tensor):
        value = tensor[~tensor.isfinite()][0].item()
        most = f"{torch.finfo(tensor.dtype).max:.5g} in {torch_name(tensor.dtype)}"
        message = f"has values that are not finite, the first one is {value} (NaN, infinity, or above {most})"
        raise CourseError(f"{folder}: {name} {message}")


def _is_finite(tensor: Tensor) -> bool:
    """Return whether a tensor has neither NaN nor infinity."""
    # NaN is both the least and the greatest number. Under ZeRO-3, a rank holds an empty tensor.
    return not tensor.numel() or all(map(torch.isfinite, tensor.detach().aminmax()))


def converted(source: Path, name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a weight of `source` in another dtype.

    Raises CourseError if it is no tensor of floats, if a value is not finite, or if one is too large for `dtype`.
    """
    require_float(source, name, tensor)
    result = tensor.to(dtype)
    if _is_finite(result):
        return result
    require_finite(source, name, tensor)
    value, most = tensor[~result.isfinite()][0].item(), f"{torch.finfo(dtype).max:.5g} in {torch_name(dtype)}"
    raise CourseError(f"{source}: {name} has values (the first one is {value:.7g}) above {most}")


def weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors in one weight file by name. Raises CourseError if the file is missing or damaged."""
    if require_file(path).suffix == ".safetensors":
        try:
            # This checks the header: every offset must lie within the file, without gaps.
            return load_file(path)
        except (SafetensorError, OSError, ValueError) as error:
            raise CourseError(f"{path}: not a safetensors file, or cut short") from error
    try:
        return {name: value for name, value in safe_load(path).items() if isinstance(value, Tensor)}
    except CourseError as error:
        raise CourseError(unread(str(error))) from error


def by_name(folder: Path) -> dict[str, Tensor]:
    """Return the weights in a folder by name, without the constants of `is_leftover`."""
    every = (weight for path in files(folder) for weight in weights(path).items())
    return {name: tensor for name, tensor in every if not is_leftover(name)}


def write(tensors: Iterable[tuple[str, Tensor]], folder: Path, shard: int) -> int:
    """Write tensors as safetensors files of at most `shard` bytes, with an index; return their elements."""
    parts: list[list[str]] = []
    waiting: dict[str, Tensor] = {}
    waiting_bytes = size = elements = 0

    def flush() -> None:
        parts.append(list(waiting))
        path = folder / f"{len(parts)}.part"
        save_file(waiting, path, metadata={"format": "pt"})
        # safetensors creates files that only the owner can read.
        path.chmod(0o644)
        waiting.clear()

    for name, value in tensors:
        if waiting and waiting_bytes + value.nbytes > shard:
            flush()
            waiting_bytes = 0
        # safetensors rejects tensors that share memory, so each one is copied.
        waiting[name] = value.detach().clone(memory_format=torch.contiguous_format)
        waiting_bytes += value.nbytes
        size += value.nbytes
        elements += value.numel()
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
