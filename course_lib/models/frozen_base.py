"""Loader for the base model in prefix tuning: a frozen GPT-2 or GPT-NeoX model from a Hugging Face folder.

Every prefix file records the digest of the base's weights, because a prefix works only with those it was trained on.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoints import model_folder, weight_files
from course_lib.errors import CourseError
from course_lib.models.families import BY_MODEL_TYPE


def read_config(folder: Path) -> Any:
    """Return the configuration of a GPT-2 or GPT-NeoX folder."""
    config = model_folder.read_config(folder)
    if config.model_type not in BY_MODEL_TYPE:
        raise CourseError(f"{folder}: a {config.model_type} model; allowed: {', '.join(BY_MODEL_TYPE)}")
    sizes = layers, heads, hidden = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    if not all(isinstance(size, int) and size > 0 for size in sizes) or hidden % heads:
        raise CourseError(f"{folder}: {layers!r} layers, {heads!r} heads and hidden size {hidden!r} do not fit")
    return config


def load(folder: Path, dtype: torch.dtype | str = "auto", attention: str | None = None) -> Any:
    """Load a GPT-2 or GPT-NeoX model, frozen and in eval mode; dtype "auto" keeps the stored dtype."""
    read_config(folder)
    return model_folder.load_model(folder, dtype, attention).requires_grad_(False)


def digest(folder: Path) -> str:
    """Return the SHA-256 digest of all weights as hex: name, dtype, shape and bytes of each, sorted by name.

    It does not depend on how the weights are split into files.
    """
    total = hashlib.sha256()
    weights = [weight for path in weight_files.files(folder) for weight in weight_files.weights(path).items()]
    for name, tensor in sorted(weights, key=lambda weight: weight[0]):
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()
