"""Prefix files in four formats, which all contain the same values in the same order.

course: a safetensors file with a tensor `prefix`; its metadata has task, base model digest, shape and settings as JSON.
rinna: the bare tensor [P, width], saved with torch.save, as by rinna's prefix-tuning-gpt and FasterTransformer.
peft: a Hugging Face peft folder. What peft does not store, the course writes to conversion.json in the same folder.
cartridge: the same folder for peft's tuner CARTRIDGE (arXiv:2506.06266), whose training may keep the first rows fixed.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from course_lib.checkpoints.safe_load import refusal
from course_lib.checkpoints.weight_files import require_finite
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, atomic_write, read_json, require_file
from course_lib.generation.prefix_cache import Prefix as Prefix
from course_lib.generation.prefix_cache import Shape
from course_lib.models import frozen_base
from course_lib.prefix.config import Form

# Tensor name and metadata key for the JSON in a course safetensors file.
TENSOR, ABOUT = "prefix", "course_prefix"
# Names that peft uses for its files and tensor.
CONFIG, WEIGHTS, EMBEDDINGS = "adapter_config.json", "adapter_model.safetensors", "prompt_embeddings"
OURS = "conversion.json"
# Folder in a model's folder with the prefixes that come with it.
BESIDE = "prefixes"
# peft's types of adapters that hold a prefix, by form.
TYPES: dict[Form, str] = {"peft": "PREFIX_TUNING", "cartridge": "CARTRIDGE"}
# Number of first rows that a cartridge's training keeps fixed: peft's setting, and our name for it in Prefix.settings.
FROZEN = "num_frozen_tokens"


def beside(folder: Path) -> dict[str, Path]:
    """Return the prefix files that come with a model, FOLDER/prefixes/NAME.safetensors, by the name of their task."""
    return {path.stem: path for path in sorted((folder / BESIDE).glob("*.safetensors"))}


def read(path: Path) -> Prefix:
    """Return the prefix (fp32) from a file in course or rinna format, or a peft folder. No code in the file is run."""
    try:
        prefix = _read_peft(path) if path.is_dir() else _read_file(require_file(path))
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CourseError(f"{path}: not a prefix, or cut short; of a peft adapter, give the folder") from error
    values = prefix.values.detach()
    if values.ndim != 2 or not values.numel() or values.shape[1] % 2 or not values.is_floating_point():
        raise CourseError(
            f"{path}: a tensor {list(values.shape)} of {values.dtype}, expected [length, 2·layers·hidden] of floats"
        )
    values = values.float().contiguous()
    if broken := int((~values.isfinite()).sum()):
        raise CourseError(f"{path}: {broken} of its {values.numel()} values are not finite numbers")
    if prefix.shape:
        prefix.require(prefix.shape)
    return replace(prefix, values=values)


def _read_file(path: Path) -> Prefix:
    with open(path, "rb") as file:
        safetensors = file.read(9)[8:] == b"{"
    if safetensors:
        with safe_open(path, "pt") as tensors:
            return _described(tensors.get_tensor(TENSOR), json.loads((tensors.metadata() or {})[ABOUT]))
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
    # A damaged file can cause any exception in the zip reader or the unpickler.
    except Exception as error:
        raise refusal(path, error) from error
    if not isinstance(values, Tensor):
        raise CourseError(f"{path}: holds a {type(values).__name__}, expected one bare tensor")
    return Prefix(values, path.name.partition(".")[0])


def _read_peft(folder: Path) -> Prefix:
    config, ours = read_json(folder / CONFIG), folder / OURS
    kind, task = config.get("peft_type"), config.get("task_type")
    if kind not in TYPES.values() or task != "CAUSAL_LM":
        allowed = " or ".join(TYPES.values())
        raise CourseError(f"{folder}: a peft adapter of type {kind} for {task}; expected {allowed} for CAUSAL_LM")
    heads = config["num_attention_heads"]
    shape = {"layers": config["num_layers"], "heads": heads, "head_size": config["token_dim"] // heads}
    with safe_open(require_file(folder / WEIGHTS), "pt") as tensors:
        values = tensors.get_tensor(EMBEDDINGS)
    rows, frozen = config["num_virtual_tokens"], config.get(FROZEN, 0)
    if rows != len(values) or not 0 <= frozen <= rows:
        stated = f"num_virtual_tokens {rows} and {FROZEN} {frozen}"
        raise CourseError(f"{folder}: {CONFIG} has {stated}, {WEIGHTS} has {len(values)} rows")
    about = {"task": folder.name} | (read_json(ours) if ours.is_file() else {}) | {"shape": shape}
    if frozen:
        about["settings"] = about.get("settings", {}) | {FROZEN: frozen}
    return _described(values, about)


def _described(values: Tensor, about: dict[str, Any]) -> Prefix:
    """Return the prefix with what a file says about it."""
    kinds = {"task": str, "base": str, "settings": dict}
    if not isinstance(about, dict):
        raise ValueError(f"{about!r} describes no prefix")
    if wrong := [key for key, kind in kinds.items() if not isinstance(about.get(key, kind()), kind)]:
        raise ValueError(f"{wrong[0]} is {about[wrong[0]]!r}")
    shape = Shape(**about["shape"]) if about["shape"] else None
    return Prefix(values, about["task"], about.get("base", ""), shape, about.get("settings", {}))


def write(prefix: Prefix, path: Path, form: Form = "course", base_folder: Path | None = None) -> None:
    """Write a prefix to a file (peft: a folder). The model in `base_folder` must match, and gives shape and digest."""
    if base_folder is not None:
        shape = Shape.of(frozen_base.read_config(base_folder))
        prefix.require(shape, frozen_base.digest(base_folder, prefix.base))
        prefix = replace(prefix, shape=shape, base=frozen_base.digest(base_folder))
    values = prefix.values.detach().float().cpu().contiguous().clone()
    require_finite(path, f"prefix {prefix.task}", values)
    about: dict[str, Any] = {
        "task": prefix.task,
        "base": prefix.base,
        "shape": asdict(prefix.shape) if prefix.shape else None,
        "settings": prefix.settings,
    }
    if form in TYPES:
        config = _peft_config(prefix, form, base_folder)
        with atomic_folder(path) as folder:
            (folder / WEIGHTS).write_bytes(save({EMBEDDINGS: values}, {"format": "pt"}))
            (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf8")
            (folder / OURS).write_text(json.dumps(about, ensure_ascii=False, indent=2) + "\n", encoding="utf8")
        return
    with atomic_write(path) as file:
        if form == "rinna":
            torch.save(values, file)
        else:
            file.write(save({TENSOR: values}, {ABOUT: json.dumps(about, ensure_ascii=False)}))


def _peft_config(prefix: Prefix, form: Form, base_folder: Path | None) -> dict[str, Any]:
    shape = prefix.shape
    if shape is None:
        raise UsageError(
            "--base: not set; give the folder of the prefix's model: the file does not state its layers and heads"
        )
    width = shape.heads * shape.head_size
    of_form: dict[str, Any] = {"encoder_hidden_size": width, "prefix_projection": False}
    if form == "cartridge":
        of_form = {FROZEN: prefix.settings.get(FROZEN, 0)}
    return of_form | {
        # The peft folder may be published, so store only the base model's folder name, not its path on this machine.
        "base_model_name_or_path": base_folder.resolve().name if base_folder else None,
        "inference_mode": True,
        "num_attention_heads": shape.heads,
        "num_layers": shape.layers,
        "num_transformer_submodules": 1,
        "num_virtual_tokens": len(prefix),
        "peft_type": TYPES[form],
        "task_type": "CAUSAL_LM",
        "token_dim": width,
    }
