"""The weights in a Hugging Face folder: read as maps of their files, written one file at a time.

So a model larger than memory passes from one folder to another. It knows nothing of what the tensors are for.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from course_lib.errors import CourseError
from course_lib.pretrain.safe_load import safe_load

NAMES = (
    "model.safetensors",
    "pytorch_model.bin",
)  # in this order; each also in several files, with an index beside them
SHARD = 2_000_000_000  # bytes of weights in one file, which is also what writing holds in memory


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a folder by name, mapped from its file: bytes are read when they are used. Raises CourseError for what is not there or damaged."""
    tensors: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        try:
            found: dict[str, Any] = load_file(path) if path.suffix == ".safetensors" else safe_load(path)
        except (SafetensorError, OSError) as error:
            raise CourseError(f"{path}: not readable, or cut short: {error}") from error
        tensors |= {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}
    return tensors


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights. Raises CourseError if there are none."""
    for name in NAMES:
        index = folder / f"{name}.index.json"
        if index.is_file():
            places = read_json(index).get("weight_map")
            files = set(map(str, places.values())) if isinstance(places, dict) else set()
            return [folder / Path(file).name for file in sorted(files)]
        if (folder / name).is_file():
            return [folder / name]
    raise CourseError(f"{folder}: no weights: neither {' nor '.join(NAMES)}, whole or in parts")


def write_tensors(tensors: Iterable[tuple[str, torch.Tensor]], folder: Path) -> int:
    """Writes safetensors of at most SHARD bytes each, and the index of several; returns how many numbers they hold."""
    parts: list[list[str]] = []
    waiting: dict[str, torch.Tensor] = {}
    held = size = numbers = 0

    def flush() -> None:
        parts.append(list(waiting))
        path = folder / f"{len(parts)}.part"
        save_file(waiting, path, metadata={"format": "pt"})
        path.chmod(0o644)  # safetensors makes it private
        waiting.clear()

    for name, value in tensors:
        if waiting and held + value.nbytes > SHARD:
            flush()
            held = 0
        waiting[name] = value.detach().clone(memory_format=torch.contiguous_format)  # no two share memory
        held, size, numbers = held + value.nbytes, size + value.nbytes, numbers + value.numel()
    flush()
    if len(parts) == 1:
        (folder / "1.part").rename(folder / NAMES[0])
        return numbers
    weight_map: dict[str, str] = {}
    for number, names in enumerate(parts, start=1):
        file = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        (folder / f"{number}.part").rename(folder / file)
        weight_map |= dict.fromkeys(names, file)
    write_json(folder / f"{NAMES[0]}.index.json", {"metadata": {"total_size": size}, "weight_map": weight_map})
    return numbers


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises CourseError for anything else."""
    try:
        content = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        raise CourseError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(content, dict):
        raise CourseError(f"{path}: holds a {type(content).__name__}, expected an object")
    return content


def write_json(path: Path, content: Any) -> None:
    """Writes JSON that people can read."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf8")
