"""The weights in a checkpoint, put together from its parts: DeepSpeed's shards of every ZeRO stage, or safetensors.

DeepSpeed's own `zero_to_fp32` merges the shards, but reads them with a full unpickler, which runs whatever a file asks for. Here torch is
told to rebuild tensors only; of DeepSpeed's classes one enum is let in, the others become Inert. Checkpoints with tensor parallelism are
megatron.py's.
"""

import io
import os
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.safe_load import HARMLESS, Inert, safe_load
from course_lib.errors import CourseError, UsageError

STAGE = "deepspeed.runtime.zero.config.ZeroStageEnum"


@dataclass(frozen=True)
class Weights:
    """Tensors by name, and where they come from."""

    tensors: dict[str, Any]  # merged from shards, a tensor may be a stand-in that `.contiguous()` puts together
    kind: str  # "fp32 master weights", or the format they were stored in
    trained_as: str  # number format of the training: fp32, bf16 or fp16


def step_folder(checkpoint: Path) -> Path | None:
    """The folder of DeepSpeed's files in a checkpoint, or None if it has none. Raises CourseError for one that is not whole."""
    if any(checkpoint.glob("*_model_states.pt")):
        return checkpoint
    latest = checkpoint / "latest"
    if not latest.is_file():
        found = [path for path in checkpoint.glob("global_step*") if path.is_dir()]
        if len(found) > 1:
            raise UsageError(f"{checkpoint}: holds {len(found)} steps and no file `latest`; name one of them")
        return found[0] if found else None
    folder = checkpoint / latest.read_text(encoding="utf8").strip()
    if not folder.is_dir():
        raise CourseError(f"{latest}: names {folder.name}, which is not there")
    return folder


def read_weights(checkpoint: Path) -> Weights:
    """The weights of a checkpoint folder: fp32 master weights where the optimizer kept them, else as stored.

    Raises CourseError if a part is missing or damaged, or asks for code to be run.
    """
    folder = step_folder(checkpoint)
    if folder is None:
        return _from_safetensors(checkpoint)
    states = sorted(folder.glob("*_model_states.pt"))
    if not states:
        raise CourseError(f"{folder}: no *_model_states.pt, not a checkpoint of DeepSpeed")
    if any("mp_rank_00" not in path.name for path in states):
        raise CourseError(
            f"{folder}: a checkpoint with tensor parallelism or pipeline; `course convert megatron` reads those"
        )
    state = safe_load(states[0])
    trained_as = _format(state)
    if any(folder.glob("*_optim_states.pt")):
        return Weights(_from_shards(folder), "fp32 master weights", trained_as)
    module = state.get("module")
    if not isinstance(module, dict):
        raise CourseError(f"{states[0]}: holds no weights (`module`)")
    return Weights(module, f"{trained_as} weights", trained_as)


def read_module(checkpoint: Path) -> dict[str, Any]:
    """The weights as the forward pass had them, what is frozen too, from a checkpoint of stage 0, 1 or 2."""
    folder = step_folder(checkpoint)
    states = sorted(folder.glob("*_model_states.pt")) if folder else []
    return dict(safe_load(states[0]).get("module") or {}) if states else {}


def _format(state: dict[str, Any]) -> str:
    settings = state.get("ds_config") or {}
    return next((name for name in ("bf16", "fp16") if (settings.get(name) or {}).get("enabled") is True), "fp32")


def _from_shards(folder: Path) -> dict[str, Any]:
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # else DeepSpeed remarks that it found no other
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    said = io.StringIO()
    try:
        with _tensors_only(sorted(folder.glob("*_states.pt"))), redirect_stdout(said), redirect_stderr(said):
            return dict(get_fp32_state_dict_from_zero_checkpoint(str(folder.parent), tag=folder.name, lazy_mode=True))
    except (pickle.UnpicklingError, RuntimeError, OSError, ValueError, KeyError, EOFError) as error:
        raise CourseError(f"{folder}: shards not readable: {' '.join(str(error).split())[:300]}") from error


@contextmanager
def _tensors_only(files: list[Path]) -> Iterator[None]:
    """While open, torch.load builds nothing but tensors and plain values, whatever its caller asks for."""
    from deepspeed.runtime.zero.config import ZeroStageEnum

    names: set[str] = set()
    for file in files:
        if not zipfile.is_zipfile(file):
            raise CourseError(f"{file}: not a PyTorch checkpoint, or cut short")
        asked = set(torch.serialization.get_unsafe_globals_in_checkpoint(file))
        if refused := sorted(name for name in asked if not HARMLESS.fullmatch(name)):
            raise CourseError(f"{file}: not loaded, it asks for {refused[0]}, which could run code")
        names |= asked
    allowed: list[Any] = [ZeroStageEnum, *((Inert, name) for name in names - {STAGE})]
    before = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # stands above weights_only=False of the caller
    try:
        with torch.serialization.safe_globals(allowed):
            yield
    finally:
        if before is None:
            del os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"]
        else:
            os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = before


def _from_safetensors(folder: Path) -> Weights:
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise CourseError(
            f"{folder}: no checkpoint: neither DeepSpeed's global_step folder nor model.safetensors in it"
        )
    tensors: dict[str, Any] = {}
    for file in files:
        try:
            tensors |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise CourseError(f"{file}: not readable, or cut short: {error}") from error
    names = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
    # Leftover masks and frequencies have formats of their own.
    weights = (tensor.dtype for name, tensor in tensors.items() if not weight_files.is_leftover(name))
    stored = names.get(next(weights, torch.float32), "fp32")
    return Weights(tensors, f"{stored} weights", stored)
