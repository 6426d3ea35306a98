"""Copying a pretrained model from a local folder or from the Hugging Face Hub."""

import shutil
from math import prod
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError, one_line

PATTERNS = ("*.json", "*.txt", "*.model", "*.safetensors", "*.bin")  # configuration, tokenizer and weights


def fetch(checkpoint: str, folder: Path) -> dict[str, Any]:
    """Copy or download a model to `folder` and return the entry for the product's manifest.

    Args:
        checkpoint: local model folder, or name of a repository on the Hub.
        folder: target folder; must not exist yet.

    Raises:
        CourseError: if the Hub has no such model or cannot be reached.
    """
    if Path(checkpoint).is_dir():
        shutil.copytree(checkpoint, folder)
        return {"checkpoint": checkpoint}
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(checkpoint, local_dir=folder, allow_patterns=list(PATTERNS))
    # The library, the network and the Hub raise different kinds of errors.
    except Exception as error:
        why = "neither a folder nor a model that the Hub provides"
        raise CourseError(f"{checkpoint}: {why}: {one_line(error)}") from error
    return {"checkpoint": checkpoint}


def fetched_model(checkpoint: str, folder: Path, _inputs: list[Path]) -> dict[str, Any]:
    """Fetch a model into the subfolder model/ of a product, and return the product's counts."""
    return fetch(checkpoint, folder / "model")


def origin(model: Path, checkpoint: str | None, run: str) -> str:
    """Return one line that says where a base comes from: its repository or folder, or the run that trained it.

    Args:
        model: folder of the base.
        checkpoint: the ready base that the profile names; None if the profile trains its base.
        run: settings file of the run that trains the base otherwise.
    """
    from course_lib.checkpoints import weight_files
    from course_lib.checkpoints.torch_dtypes import torch_name

    weights = list(weight_files.by_name(model).values())
    elements = sum(prod(weight.shape) for weight in weights)
    name = Path(checkpoint).name if checkpoint and Path(checkpoint).is_dir() else checkpoint
    how = f"loaded from {name}, not trained here" if checkpoint else f"trained here with {run}"
    return f"base: {how}; {elements:,} numbers in {torch_name(weights[0].dtype)}"
