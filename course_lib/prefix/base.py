"""The frozen model under a prefix: any Hugging Face folder of a GPT-2 or GPT-NeoX. It is only read.

Its digest goes into every prefix file: a prefix works with the weights it was trained on and no others.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from course_lib.errors import CourseError
from course_lib.files import require_file
from course_lib.pretrain.quiet import quiet
from course_lib.pretrain.safe_load import safe_load

FAMILIES = {"gpt2": "GPT-2", "gpt_neox": "GPT-NeoX"}
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def read_config(folder: Path) -> Any:
    """The configuration of a GPT-2 or GPT-NeoX folder. Raises CourseError for anything else."""
    if not (folder / "config.json").is_file():
        raise CourseError(f"{folder}: not a model folder, it has no config.json (`course export` writes one)")
    try:
        with quiet():
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the reader of a damaged file can end in any error
        raise CourseError(f"{folder}: not readable as a model: {' '.join(str(error).split())[:300]}") from error
    if config.model_type not in FAMILIES:
        raise CourseError(f"{folder}: a {config.model_type} model cannot take a prefix; allowed: {', '.join(FAMILIES)}")
    return config


def load(folder: Path, dtype: torch.dtype | str = "auto", attention: str | None = None) -> Any:
    """The model, frozen and in eval mode, its weights in `dtype` at once ("auto": as stored).

    Raises CourseError for another family, an unreadable folder and one that lacks weights.
    """
    config = read_config(folder)
    try:
        with quiet():
            model, found = AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                attn_implementation=attention,
                local_files_only=True,
                output_loading_info=True,
            )
    except Exception as error:  # as above
        raise CourseError(f"{folder}: not readable as a model: {' '.join(str(error).split())[:300]}") from error
    if missing := sorted(found["missing_keys"]):
        raise CourseError(
            f"{folder}: the weights lack {missing[0]} and {len(missing) - 1} more: {FAMILIES[config.model_type]} needs them"
        )
    return model.requires_grad_(False).eval()


def digest(folder: Path) -> str:
    """SHA-256, as hex, over all weights by name: name, number format, shape, bytes. One tensor at a time is in memory.

    Independent of how the weights are cut into files. Raises CourseError for a folder without weights or with a damaged file.
    """
    total = hashlib.sha256()
    readers = [_reader(path) for path in _weight_files(folder)]
    sources = {name: read for names, read in readers for name in names}
    for name in sorted(sources):
        tensor = sources[name](name)
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _weight_files(folder: Path) -> list[Path]:
    """The files that from_pretrained would read."""
    found = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if found is None:
        raise CourseError(f"{folder}: holds no weights; expected one of {', '.join(WEIGHTS)}")
    if found.suffix != ".json":
        return [found]
    try:
        names = set(json.loads(found.read_text(encoding="utf8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CourseError(f"{found}: not an index of weight files") from error
    return [folder / str(name) for name in sorted(names)]


def _reader(path: Path) -> tuple[list[str], Callable[[str], Tensor]]:
    """The names of a file's tensors, and how to get one."""
    require_file(path)
    if path.suffix == ".safetensors":
        try:
            file = safe_open(path, "pt")
        except SafetensorError as error:
            raise CourseError(f"{path}: not a safetensors file, or cut short") from error
        return list(file.keys()), file.get_tensor  # type: ignore[no-untyped-call]
    tensors = safe_load(path)
    return [name for name, tensor in tensors.items() if isinstance(tensor, Tensor)], tensors.__getitem__
