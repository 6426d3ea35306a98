"""Reader for training checkpoints: DeepSpeed shards of any ZeRO stage.

DeepSpeed's `zero_to_fp32` merges the shards, but unpickles them without restrictions; here, safe_load.py restricts it.
"""

import io
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.safe_load import Inert, harmless, safe_load
from course_lib.errors import CourseError, UsageError, one_line
from course_lib.language.words import mark

STAGE = "deepspeed.runtime.zero.config.ZeroStageEnum"


@dataclass(frozen=True)
class Weights:
    """The tensors in a checkpoint."""

    tensors: dict[str, Any]  # tensors or DeepSpeed's lazy tensors, which `.contiguous()` merges, by name
    kind: str  # "fp32 master weights", or the dtype of the training, such as "bf16 weights"
    trained_as: NumberFormat  # dtype used for training


def step_folder(checkpoint: Path) -> Path | None:
    """Return the folder that holds DeepSpeed's files in a checkpoint, or None if there is none."""
    if any(checkpoint.glob("*_model_states.pt")):
        return checkpoint
    latest = checkpoint / "latest"
    if not latest.is_file():
        steps = [path for path in checkpoint.glob("global_step*") if path.is_dir()]
        if len(steps) > 1:
            raise UsageError(f"{checkpoint}: holds {len(steps)} steps and no file `latest`; name one of them")
        return steps[0] if steps else None
    name = latest.read_text(encoding="utf8", errors="replace").strip()
    folders = {path.name: path for path in checkpoint.iterdir() if path.is_dir()}
    if name not in folders:
        raise CourseError(f"{latest}: names {name[:100]!r}, which is not there")
    return folders[name]


def read_weights(checkpoint: Path) -> Weights:
    """Return the optimizer's fp32 master weights in a checkpoint folder if saved, else the stored weights."""
    folder, state = _model_states(checkpoint)
    settings = state.get("ds_config") or {}
    formats: tuple[NumberFormat, ...] = ("bf16", "fp16")
    enabled = (name for name in formats if (settings.get(name) or {}).get("enabled") is True)
    trained_as: NumberFormat = next(enabled, "fp32")
    tensors, kind = state.get("module"), f"{trained_as} weights"
    if any(folder.glob("*_optim_states.pt")):
        tensors, kind = _from_shards(folder), mark("fp32 master weights")
    return Weights(tensors or {}, kind, trained_as)


def read_module(checkpoint: Path) -> dict[str, Any]:
    """Return the weights of the forward pass, with frozen ones, from a checkpoint of ZeRO stage 0, 1 or 2."""
    return dict(_model_states(checkpoint)[1].get("module") or {})


def _model_states(checkpoint: Path) -> tuple[Path, dict[str, Any]]:
    """Return the folder with DeepSpeed's files, and the model states of its first rank."""
    folder = step_folder(checkpoint)
    states = sorted(folder.glob("*_model_states.pt")) if folder else []
    if not folder or not states:
        raise CourseError(f"{checkpoint}: no *_model_states.pt, not a checkpoint of DeepSpeed")
    return folder, safe_load(states[0])


def _from_shards(folder: Path) -> dict[str, Any]:
    """Return the fp32 master weights, merged from the ZeRO shards in a step folder."""
    if not torch.cuda.is_available():
        # Without this variable, DeepSpeed warns that it found no accelerator.
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    discarded = io.StringIO()
    try:
        with _tensors_only(sorted(folder.glob("*_states.pt"))), redirect_stdout(discarded), redirect_stderr(discarded):
            return dict(get_fp32_state_dict_from_zero_checkpoint(str(folder.parent), tag=folder.name, lazy_mode=True))
    except (pickle.UnpicklingError, RuntimeError, OSError, ValueError, KeyError, EOFError) as error:
        raise CourseError(f"{folder}: shards not readable: {one_line(error)}") from error


@contextmanager
def _tensors_only(files: list[Path]) -> Iterator[None]:
    """Make torch.load rebuild only tensors and plain values in the context, even with weights_only=False."""
    from deepspeed.runtime.zero.config import ZeroStageEnum

    allowed = [each for file in files for each in harmless(file) if each != (Inert, STAGE)]
    before = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    # This variable overrides the weights_only=False in DeepSpeed's call.
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    try:
        with torch.serialization.safe_globals([ZeroStageEnum, *allowed]):
            yield
    finally:
        os.environ.pop("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
        os.environ |= {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": before} if before is not None else {}
