"""The frozen model under a prefix: any Hugging Face folder of a GPT-2 or GPT-NeoX. It is only read.

Its digest goes into every prefix file: a prefix works with the weights it was trained on and no others.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from course_lib.errors import CourseError
from course_lib.pretrain import weight_files
from course_lib.pretrain.quiet import quiet

FAMILIES = {"gpt2": "GPT-2", "gpt_neox": "GPT-NeoX"}


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
        raise CourseError(f"{folder}: a {config.model_type} model; allowed: {', '.join(FAMILIES)}")
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
