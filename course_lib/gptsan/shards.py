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

from course_lib.checkpoints.safe_load import safe_load
from course_lib.checkpoints.weight_files import files as weight_files
from course_lib.errors import CourseError
from course_lib.files import read_json

__all__ = ["read_json", "read_tensors", "weight_files", "write_json", "write_tensors"]
NAME = "model.safetensors"  # also in several files, with an index beside them
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
        (folder / "1.part").rename(folder / NAME)
        return numbers
    weight_map: dict[str, str] = {}
    for number, names in enumerate(parts, start=1):
        file = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        (folder / f"{number}.part").rename(folder / file)
        weight_map |= dict.fromkeys(names, file)
    write_json(folder / f"{NAME}.index.json", {"metadata": {"total_size": size}, "weight_map": weight_map})
    return numbers


def write_json(path: Path, content: Any) -> None:
    """Writes JSON that people can read."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf8")
