"""Reads and writes the weights in a Hugging Face folder.

Weights are memory-mapped for reading and written one file at a time. So a model larger than memory can be copied from
one folder to another. The code does not depend on the kind of model.
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
# Name of the weights in one file; also part of the name of the index of several files.
NAME = "model.safetensors"
# Bytes of weights in one file; writing holds up to this many bytes in memory.
SHARD = 2_000_000_000


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor in a folder, by name, memory-mapped: its bytes are read when they are used.

    Raises:
        CourseError: a weight file is missing or damaged.
    """
    tensors: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        try:
            content: dict[str, Any] = load_file(path) if path.suffix == ".safetensors" else safe_load(path)
        except (SafetensorError, OSError) as error:
            raise CourseError(f"{path}: not readable, or cut short: {error}") from error
        tensors |= {name: value for name, value in content.items() if isinstance(value, torch.Tensor)}
    return tensors


def write_tensors(tensors: Iterable[tuple[str, torch.Tensor]], folder: Path) -> int:
    """Writes tensors as safetensors files of at most SHARD bytes each, and an index if there are several files.

    Returns:
        The number of elements in all tensors together.
    """
    parts: list[list[str]] = []
    waiting: dict[str, torch.Tensor] = {}
    held = size = numbers = 0

    def flush() -> None:
        parts.append(list(waiting))
        path = folder / f"{len(parts)}.part"
        save_file(waiting, path, metadata={"format": "pt"})
        # safetensors creates files that only their owner can read.
        path.chmod(0o644)
        waiting.clear()

    for name, value in tensors:
        if waiting and held + value.nbytes > SHARD:
            flush()
            held = 0
        # safetensors refuses tensors that share memory, so each one is copied.
        waiting[name] = value.detach().clone(memory_format=torch.contiguous_format)
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
    """Writes indented JSON with a newline at the end."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf8")
