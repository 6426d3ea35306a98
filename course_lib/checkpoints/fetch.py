"""A ready model instead of one of our own: a folder, or a name on the Hugging Face Hub."""

import shutil
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError

PATTERNS = ("*.json", "*.txt", "*.model", "*.safetensors", "*.bin")  # configuration, tokenizer and weights


def fetch(checkpoint: str, folder: Path) -> dict[str, Any]:
    """Copies or downloads it to `folder`, which does not exist yet; returns what a manifest says of it. Raises CourseError."""
    if Path(checkpoint).is_dir():
        shutil.copytree(checkpoint, folder)
        return {"checkpoint": checkpoint}
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(checkpoint, local_dir=folder, allow_patterns=list(PATTERNS))
    except Exception as error:  # of the library, the network or the Hub
        raise CourseError(
            f"{checkpoint}: neither a folder nor a model that the Hub gives: {' '.join(str(error).split())[:300]}"
        ) from error
    return {"checkpoint": checkpoint}
