"""Copying a pretrained model from a local folder or from the Hugging Face Hub."""

import re
import shutil
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from course_lib import paths
from course_lib.errors import CourseError, one_line
from course_lib.files import link_or_copy
from course_lib.language.words import tr
from course_lib.settings import profiles

SETTINGS = ("*.json", "*.txt", "*.model")
# The preferred format first.
WEIGHTS = (
    re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?"),
    re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin(\.index\.json)?"),
)


def fetch(checkpoint: str, folder: Path) -> dict[str, Any]:
    """Copy a model to `folder` from a folder beside the profile's file or from the Hub; return its manifest entry."""
    if profiles.beside(checkpoint).is_dir():
        shutil.copytree(profiles.beside(checkpoint), folder)
        return {"checkpoint": checkpoint}
    # Outside the product's folder, so that an interrupted download can be resumed and `course clean` does not delete it
    downloads = paths.root() / "downloads" / checkpoint
    names, revision = _download(checkpoint, downloads)
    folder.mkdir()
    for name in names:
        link_or_copy(downloads / name, folder / name)
    return {"checkpoint": checkpoint, "revision": revision}


def _download(checkpoint: str, folder: Path) -> tuple[list[str], str]:
    """Download a model to `folder` and return the names of its files and their revision."""
    from huggingface_hub import HfApi, snapshot_download

    problem = "neither a folder nor a model that the Hub provides"
    # The library, the network and the Hub raise different kinds of errors.
    try:
        found = HfApi().model_info(checkpoint)
        names, revision = needed(file.rfilename for file in found.siblings or ()), str(found.sha)
        problem = "the download stopped, and continues when it is asked for again"
        snapshot_download(checkpoint, revision=revision, local_dir=folder, allow_patterns=names)
    except Exception as error:
        raise CourseError(f"{checkpoint}: {problem}: {one_line(error)}") from error
    return names, revision


def needed(names: Iterable[str]) -> list[str]:
    """Return the files of a repository that loading needs: configuration, tokenizer and one copy of the weights."""
    top = [name for name in names if "/" not in name]
    copies = [[name for name in top if weights.fullmatch(name)] for weights in WEIGHTS]
    chosen = next(filter(None, copies), [])
    settings = {name for name in top if any(fnmatch(name, pattern) for pattern in SETTINGS)}.difference(*copies)
    return [name for name in top if name in chosen or name in settings]


def origin(model: Path, checkpoint: str | None, run: str) -> str:
    """Return one line that says where a base comes from: the profile's `checkpoint`, or the settings file `run`."""
    from course_lib.checkpoints import weight_files
    from course_lib.checkpoints.torch_dtypes import torch_name

    weights = list(weight_files.by_name(model).values())
    elements = sum(weight.numel() for weight in weights)
    local = checkpoint and profiles.beside(checkpoint).is_dir()
    name = Path(checkpoint).name if checkpoint and local else checkpoint
    loaded, trained = tr("loaded from {name}, not trained here", name=name), tr("trained here with {run}", run=run)
    how, dtype = loaded if checkpoint else trained, torch_name(weights[0].dtype)
    return tr("base: {how}; {elements:,} numbers in {dtype}", how=how, elements=elements, dtype=dtype)
