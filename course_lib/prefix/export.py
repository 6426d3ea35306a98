"""Export of a run's trained weights: a prefix file or, for the `full` method, a Hugging Face folder."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import torch

from course_lib.checkpoints.deepspeed_shards import read_weights
from course_lib.checkpoints.quiet import quiet
from course_lib.generation.prefix_cache import Shape
from course_lib.language.words import tr
from course_lib.models import frozen_base
from course_lib.prefix.config import FILE, PrefixConfig
from course_lib.prefix.files import Prefix, write
from course_lib.prefix.model import ENCODER, new_encoder
from course_lib.settings import config
from course_lib.training import checkpoint, log, run_dir
from course_lib.training.task import CONFIG


@dataclass(frozen=True)
class PrefixExport:
    """An exported prefix or model."""

    target: Path
    step: int  # training step of the weights
    what: str  # "task …, … positions" or "the whole base"
    loss: float | None  # last held-out loss up to this step [nats per token]

    def summary(self) -> str:
        """Return a one-line description."""
        parts = [tr("step {step:,}", step=self.step), self.what]
        if self.loss is not None:
            parts.append(tr("held-out loss {loss:.4f}", loss=self.loss))
        return tr(", ").join(parts) + f" → {self.target}"


def export(run: Path, target: Path | None = None, step: int | None = None) -> PrefixExport:
    """Write the prefix (method `full`: the base, to a folder) from the checkpoint of a step, by default the latest.

    It is computed from the optimizer's fp32 weights. The default target is in the run folder.
    """
    latest = checkpoint.to_export(run, step)
    settings, step = config.load(PrefixConfig, run / CONFIG), checkpoint.step_of(latest)
    losses = [entry["loss"] for entry in log.read(run) if entry["kind"] == "eval" and entry["step"] <= step]
    held_out = losses[-1] if losses else None
    tensors = {name: value.contiguous() for name, value in read_weights(latest).tensors.items()}
    if settings.model.method == "full":
        target = target or run / run_dir.MODEL
        _write_model(settings, run, tensors, target)
        return PrefixExport(target, step, tr("the whole base"), held_out)
    target = target or run / FILE
    prefix = _prefix(settings, run, tensors, {"step": step, "held_out_loss": held_out})
    write(prefix, target)
    what = tr("task {name}, {positions} positions", name=settings.task_name, positions=len(prefix))
    return PrefixExport(target, step, what, held_out)


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
            parameter.copy_(tensors[f"base.{name}"])
    with run_dir.export_folder(run, target) as folder:
        with quiet():
            model.save_pretrained(folder)
        shutil.copytree(run / "tokenizer", folder, dirs_exist_ok=True)
