"""Export of a run's trained weights: a prefix file or, for the `full` method, a Hugging Face folder."""

import shutil
from pathlib import Path
from typing import Any

import orjson
import torch

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.model_folder import save_model
from course_lib.checkpoints.training_state import read_weights
from course_lib.generation.prefix_cache import Shape
from course_lib.models import frozen_base
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.files import Prefix, write
from course_lib.prefix.model import ENCODER, new_encoder
from course_lib.settings import config
from course_lib.training import checkpoint, log, run_dir
from course_lib.training.run_dir import CONFIG


def export(run: Path, target: Path, step: int | None = None) -> dict[str, Any]:
    """Write the prefix (method `full`: the base, to a folder) of a checkpoint, by default the latest; return facts."""
    latest = checkpoint.to_export(run, step)
    settings, step = config.load(PrefixConfig, run / CONFIG), checkpoint.step_of(latest)
    losses = [entry["loss"] for entry in log.read(run) if entry["kind"] == "eval" and entry["step"] <= step]
    facts: dict[str, Any] = {"step": step, "held_out_loss": losses[-1] if losses else None}
    tensors = {name: value.contiguous() for name, value in read_weights(latest).tensors.items()}
    if settings.model.method == "full":
        _write_model(settings, run, tensors, target)
        return facts
    prefix = _prefix(settings, run, tensors, dict(facts))
    write(prefix, target)
    return {"task": settings.task_name, "positions": len(prefix)} | facts


def _prefix(settings: PrefixConfig, run: Path, tensors: dict[str, Any], about: dict[str, Any]) -> Prefix:
    """Return the prefix computed by a trained encoder, with its task, base model digest, shape and settings."""
    fingerprint = orjson.loads((run / run_dir.DATA).read_bytes())
    shape = Shape(**fingerprint["shape"])
    encoder = new_encoder(settings.model, shape)
    encoder.load_state_dict({name.removeprefix(ENCODER): value.float() for name, value in tensors.items()})
    chosen = config.to_dict(settings)
    about |= {key: chosen[key] for key in ("data", "optimizer")}
    # Prefix files may be shared, so store only the file name, not its path on this machine.
    about["data"]["input"] = settings.data.input and settings.data.input.name
    about["model"] = {key: chosen["model"][key] for key in ("method", "length", "input_dim", "hidden_dim", "dropout")}
    return Prefix(encoder.deployed(), settings.task_name, fingerprint["base"], shape, about)


def _write_model(settings: PrefixConfig, run: Path, tensors: dict[str, Any], target: Path) -> None:
    """Write the trained base model as a Hugging Face folder, in the dtype in which its weights were stored."""
    assert settings.model.base
    model = frozen_base.load(settings.model.base)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = weight_files.converted(run, name, tensors[f"base.{name}"], parameter.dtype)
            parameter.copy_(value)
    # The samples that it learned have nothing before them, other than the documents of a base (text_codec.py).
    model.generation_config.bos_token_id = model.config.bos_token_id
    with run_dir.export_folder(run, target) as folder:
        save_model(model, folder)
        shutil.copytree(run / "tokenizer", folder, dirs_exist_ok=True)
