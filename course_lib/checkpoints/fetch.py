"""Copying a pretrained model from a local folder or from the Hugging Face Hub."""

import re
import shutil
from collections.abc import Iterable
from fnmatch import fnmatch
from math import prod
from pathlib import Path
from typing import Any

from course_lib import paths
from course_lib.errors import CourseError, one_line
from course_lib.files import link_or_copy
from course_lib.language.words import tr
from course_lib.settings import profiles

# Configuration and tokenizer.
SETTINGS = ("*.json", "*.txt", "*.model")
# Weights in one file or several, with their index; the preferred format first.
WEIGHTS = tuple(
    re.compile(rf"{name}(-\d+-of-\d+)?\.{suffix}(\.index\.json)?")
    for name, suffix in (("model", "safetensors"), ("pytorch_model", "bin"))
)


def fetch(checkpoint: str, folder: Path) -> dict[str, Any]:
    """Copy or download a model to the new folder `folder`, and return the entry for the product's manifest.

    `checkpoint` is a folder, relative to the profile's file, or the name of a repository on the Hub.
    """
    if profiles.beside(checkpoint).is_dir():
        shutil.copytree(profiles.beside(checkpoint), folder)
        return {"checkpoint": checkpoint}
    # Outside the product's folder, so that an interrupted download can be resumed and `course clean` does not delete it
    place = paths.root() / "downloads" / checkpoint
    names, revision = _download(checkpoint, place)
    folder.mkdir()
    for name in names:
        link_or_copy(place / name, folder / name)
    return {"checkpoint": checkpoint, "revision": revision}


def _download(checkpoint: str, place: Path) -> tuple[list[str], str]:
    """Download a model to the folder `place` and return the names of its files and their revision."""
    from huggingface_hub import HfApi, snapshot_download

    # The library, the network and the Hub raise different kinds of errors.
    try:
        found = HfApi().model_info(checkpoint)
    except Exception as error:
        raise CourseError(
            f"{checkpoint}: neither a folder nor a model that the Hub provides: {one_line(error)}"
        ) from error
    names, revision = needed(file.rfilename for file in found.siblings or ()), str(found.sha)
    try:
        snapshot_download(checkpoint, revision=revision, local_dir=place, allow_patterns=names)
    except Exception as error:
        raise CourseError(
            f"{checkpoint}: the download stopped, and continues when it is asked for again: {one_line(error)}"
        ) from error
    return names, revision


def needed(names: Iterable[str]) -> list[str]:
    """Return the files of a repository that loading needs: configuration, tokenizer and one copy of the weights."""
    top = [name for name in names if "/" not in name]
    chosen = next((weights for weights in WEIGHTS if any(map(weights.fullmatch, top))), None)

    def is_needed(name: str) -> bool:
        weights = next((weights for weights in WEIGHTS if weights.fullmatch(name)), None)
        return weights is chosen if weights else any(fnmatch(name, pattern) for pattern in SETTINGS)

    return [name for name in top if is_needed(name)]


def origin(model: Path, checkpoint: str | None, run: str) -> str:
    """Return one line that says where a base comes from: the profile's `checkpoint`, or the settings file `run`."""
    from course_lib.checkpoints import weight_files
    from course_lib.checkpoints.torch_dtypes import torch_name

    weights = list(weight_files.by_name(model).values())
    elements = sum(prod(weight.shape) for weight in weights)
    local = checkpoint and profiles.beside(checkpoint).is_dir()
    name = Path(checkpoint).name if checkpoint and local else checkpoint
    loaded, trained = tr("loaded from {name}, not trained here", name=name), tr("trained here with {run}", run=run)
    how, dtype = loaded if checkpoint else trained, torch_name(weights[0].dtype)
    return tr("base: {how}; {elements:,} numbers in {dtype}", how=how, elements=elements, dtype=dtype)
