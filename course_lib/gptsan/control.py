"""Short trainings of an extra stage, with and without the class in the spout: what does the spout contribute?

Loss, optimizer and learning-rate schedule are those of a DeepSpeed run (trainer.py), but everything runs in this
process, on the GPU if there is one, with shorter examples, and nothing is saved. The frozen weights are in bf16 if the
settings say so, otherwise in fp32; the trained weights are in fp32.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from course_lib.checkpoints import compute, model_folder, weight_files
from course_lib.checkpoints.compute import one_thread, trainings_at_once
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.configuration import read_config
from course_lib.gptsan.examples import Examples
from course_lib.gptsan.extra_stage import IGNORE, initial
from course_lib.gptsan.freeze import SPOUT, frozen_names
from course_lib.gptsan.layouts import NO_TARGET
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.prefix import prefix_types
from course_lib.gptsan.samples import collate, cross_entropy
from course_lib.gptsan.shape import SPOUT_OUT
from course_lib.notebooks.progress import progress
from course_lib.parallel import ordered_map
from course_lib.training import quick
from course_lib.training.freezing import freeze

Rows = npt.NDArray[np.int64]


class Outcome(NamedTuple):
    """What a short training has learned about the held-out examples."""

    loss: float  # with the right class in the spout [nats per token]
    agreement: float  # share of the examples that are most probable with their own class in the spout


@dataclass(frozen=True)
class Control:
    """Settings for short trainings."""

    steps: int = 40
    samples: int = 16  # examples per step
    length: int = 96  # tokens of each example that are used

    @classmethod
    def of(cls, settings: GptsanConfig) -> "Control":
        """Return the settings for a short version of a run: the default, or half of its steps if that is less."""
        return cls(steps=min(cls.steps, (settings.engine.max_steps or 2 * cls.steps) // 2))


def short_runs(
    stage: Path,
    settings: GptsanConfig,
    examples: tuple[Examples, Examples],
    ways: Mapping[str, bool],
    seeds: Sequence[int],
    how: Control,
) -> dict[str, list[Outcome]]:
    """Train each way once for each seed, as `short_run` does, and return the outcomes by name.

    On the CPU, a small model trains on one thread, and the other cores train others at the same time. `ways` says by
    name whether each training document has the class of a random document. `examples` are those for training and the
    held-out ones, with class labels.
    """
    runs = [(seed, shuffled) for shuffled in ways.values() for seed in seeds]
    parameters = sum(math.prod(weight.shape) for weight in weight_files.by_name(stage).values())
    workers = min(trainings_at_once(parameters, settings.launch.device), len(runs))
    found: dict[str, list[Outcome]] = {name: [] for name in ways}
    names = (name for name in ways for _ in seeds)
    with progress(len(runs), "run", "training") as bar:
        for outcome in ordered_map(partial(short_run, stage, settings, examples, how), runs, workers):
            found[next(names)].append(outcome)
            bar.update()
    return found


def short_run(
    stage: Path, settings: GptsanConfig, examples: tuple[Examples, Examples], how: Control, run: tuple[int, bool]
) -> Outcome:
    """Train new extra layers and the spout on a frozen base, and evaluate on the held-out examples.

    `run` is the seed for the new weights, the order of the examples and the shuffling, and whether each training
    document has the class of a random document. The spout then says nothing about the text; all else is the same.
    """
    (train, held_out), (seed, shuffled) = examples, run
    with torch.random.fork_rng():
        # For the routers' jitter.
        torch.manual_seed(seed)
        model = _staged(stage, settings, seed)
        rng = np.random.default_rng(seed)
        classes = _classes(train, rng if shuffled else None)

        def loss(rows: Rows) -> Tensor:
            output, y = _read(model, train, rows, classes[rows], how.length)
            mean, log_z = cross_entropy(output.logits, y)
            whole: Tensor = mean + settings.loss.z_loss * log_z + output.router_loss
            return whole

        def batches() -> Iterator[list[Rows]]:
            while True:
                order = rng.permutation(len(train))
                for at in range(0, len(train) - how.samples + 1, how.samples):
                    bar.update()
                    yield [order[at : at + how.samples]]

        label = "shuffled classes" if shuffled else "own classes"
        with one_thread(model.num_parameters()), progress(how.steps, "step", f"seed {seed}, {label}") as bar:
            quick.train(model, loss, batches(), settings.optimizer, how.steps)
            return _evaluate(model.eval(), held_out, len(train.classes or {}), how)


def _staged(stage: Path, settings: GptsanConfig, seed: int) -> GPTSanForCausalLM:
    """Return the model with new extra layers, everything else but the spout frozen."""
    config = read_config(stage)
    config.router_jitter_noise = settings.loss.router_jitter
    # fp16 would need a loss scale.
    dtype = torch.float32 if settings.precision.dtype == "fp16" else TORCH[settings.precision.dtype]
    model: GPTSanForCausalLM = model_folder.load_weights(GPTSanForCausalLM, stage, config, dtype=dtype)
    freeze(model, frozen_names(stage / IGNORE, "onehot", config))
    rng = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            new = name == SPOUT_OUT or not name.startswith(SPOUT)
            parameter.data = initial(name, parameter.shape, rng, config) if new else parameter.data.float()
    model.to(compute.device(settings.launch.device))
    return model


def _classes(examples: Examples, rng: np.random.Generator | None) -> Rows:
    """Return the class of each example, or with `rng`, that of another document."""
    labels, documents = (np.asarray(examples.arrays[name][examples.rows], np.int64) for name in ("i", "document"))
    if rng is None:
        return labels
    _, first, number = np.unique(documents, return_index=True, return_inverse=True)
    return labels[first][rng.permutation(len(first))][number]


def _read(model: GPTSanForCausalLM, examples: Examples, rows: Rows, classes: Rows, length: int) -> tuple[Any, Tensor]:
    """Return the model's output for some rows with `classes` in the spout, and the targets [B, T]."""
    device = model.device
    batch = {name: tensor.to(device) for name, tensor in collate([examples[int(row)] for row in rows]).items()}
    x, y = batch["x"][:, :length], batch["y"][:, :length]
    spout = functional.one_hot(torch.from_numpy(classes), model.config.d_spout).float().to(device)
    types = prefix_types(batch["num_input"], x.shape[1], True)
    # The dtype of the frozen weights; the trained weights are fp32.
    dtype = model.model.embed_tokens.weight.dtype
    with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        return model(x, token_type_ids=types, spout=spout, use_cache=False), y


@torch.inference_mode()
def _evaluate(model: GPTSanForCausalLM, held_out: Examples, classes: int, how: Control) -> Outcome:
    # [examples, classes], in nats
    losses = np.zeros((len(held_out), classes))
    for at in range(0, len(held_out), how.samples):
        rows = np.arange(at, min(at + how.samples, len(held_out)))
        for label in range(classes):
            output, y = _read(model, held_out, rows, np.full(len(rows), label), how.length)
            logits = output.logits.float().transpose(1, 2)
            each = functional.cross_entropy(logits, y, ignore_index=NO_TARGET, reduction="none")
            losses[rows, label] = each.sum(1).cpu().numpy()
    own = _classes(held_out, None)
    right = losses[np.arange(len(own)), own]
    tokens = (held_out.arrays["y"][held_out.rows, : how.length] != NO_TARGET).sum()
    return Outcome(float(right.sum() / tokens), float((losses.argmin(1) == own).mean()))
