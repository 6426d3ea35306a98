"""The frozen model under a prefix: any Hugging Face folder of a GPT-2 or GPT-NeoX. It is only read.

Its digest goes into every prefix file: a prefix works with the weights it was trained on and no others.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoints import model_folder, weight_files
from course_lib.errors import CourseError

FAMILIES = {"gpt2": "GPT-2", "gpt_neox": "GPT-NeoX"}


def read_config(folder: Path) -> Any:
    """The configuration of a GPT-2 or GPT-NeoX folder. Raises CourseError for anything else."""
    config = model_folder.read_config(folder)
    if config.model_type not in FAMILIES:
        raise CourseError(f"{folder}: a {config.model_type} model; allowed: {', '.join(FAMILIES)}")
    if config.hidden_size % config.num_attention_heads:
        raise CourseError(
            f"{folder}: {config.num_attention_heads} heads do not divide the hidden size {config.hidden_size} of its config.json"
        )
    rope = getattr(config, "rope_parameters", None) or {}
    for key in ("rope_theta", "partial_rotary_factor"):
        if not isinstance(number := rope.get(key, 1.0), int | float):
            raise CourseError(f"{folder / 'config.json'}: rope_parameters.{key} = {number!r}; allowed: a number")
    return config


def load(folder: Path, dtype: torch.dtype | str = "auto", attention: str | None = None) -> Any:
    """The model, frozen and in eval mode, its weights in `dtype` at once ("auto": as stored).

    Raises CourseError for another family, an unreadable folder and one that lacks weights.
    """
    read_config(folder)
    return model_folder.load_model(folder, dtype, attention).requires_grad_(False)


def digest(folder: Path) -> str:
    """SHA-256, as hex, over all weights by name: name, number format, shape, bytes. A few megabytes at a time are in memory.

    Independent of how the weights are cut into files. Raises CourseError for a folder without weights or with a damaged file.
    """
    total = hashlib.sha256()
    found = [weight for path in weight_files.files(folder) for weight in weight_files.weights(path)]
    for weight in sorted(found, key=lambda weight: weight.name):
        total.update(f"{weight.name} {weight.dtype} {list(weight.shape)}\n".encode())
        for chunk in weight.in_turn():
            total.update(chunk.contiguous().view(torch.uint8).numpy().data)
    return total.hexdigest()
