"""Saving and loading the state of a run: weights, optimizer, loss scale and random generators.

A checkpoint names everything by parameter (checkpoints/state_files.py), so any engine, ZeRO stage and number of ranks
can load it. All ranks call `save` and `load`, because under ZeRO each has a part of the state.
"""

import io
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.checkpoints import state_files, training_state
from course_lib.checkpoints.safe_load import safe_load
from course_lib.checkpoints.state_files import WEIGHT, LossScaleState, TrainingState, key
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import CourseError
from course_lib.files import naming
from course_lib.training import optimizer_state
from course_lib.training.engines import DeepSpeedEngine, Engine
from course_lib.training.parameter_groups import parameter_groups
from course_lib.training.ranks import Rank

# What damaged states of random generators raise.
DAMAGED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError)


@dataclass(frozen=True)
class _Entry:
    """A tensor of a checkpoint, and the rank that writes it."""

    name: str  # of the parameter or buffer
    kind: str
    value: Tensor  # the parameter or buffer
    dtype: torch.dtype
    shape: torch.Size
    owner: int

    @property
    def key(self) -> str:
        return key(self.name, self.kind)


def save(engine: Engine, folder: Path, rank: Rank, facts: Mapping[str, Any], frozen: bool = True) -> None:
    """Write the state of a run to a folder, in all ranks, and return when every rank has written its files.

    A rank writes its share of the parameters, one tensor at a time. `facts` are JSON values of the training loop, which
    `load` returns. `frozen` says whether to write frozen parameters and buffers, which training does not change.
    """
    model: nn.Module = engine.model
    optimizer = optimizer_state.of(engine)
    entries = _entries(model, optimizer, rank.ranks, frozen)
    if rank.first:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_earlier(folder)
    rank.barrier()
    planned = {entry.key: (entry.dtype, entry.shape) for entry in entries if entry.owner == rank.number}
    with optimizer.reading(), state_files.writer(folder / state_files.file_of(rank.number), planned) as file:
        for entry in entries:
            # Under ZeRO, all ranks take part in this call.
            value = optimizer.read(entry.value, entry.kind)
            if entry.owner == rank.number:
                file.write(value)
    path = folder / _generators_of(rank.number)
    # On a full disk, torch.save to a file raises a RuntimeError that does not say so.
    states = io.BytesIO()
    torch.save(generators(rank.device), states)
    with naming(path):
        path.write_bytes(states.getvalue())
    if rank.first:
        dtype = next(name for name, each in TORCH.items() if each == engine.dtype)
        state = TrainingState(
            {}, optimizer.updates(), dtype, rank.ranks, _loss_scale(engine), _shared(model), facts=facts
        )
        files = {entry.name: state_files.file_of(entry.owner) for entry in entries}
        state_files.write_facts(folder, state, files)
    rank.barrier()


def load(engine: Engine, folder: Path, rank: Rank) -> Mapping[str, Any]:
    """Load the state of a run from a folder into a new engine, in all ranks, and return the facts that were saved.

    Afterwards, the weights of the forward pass are the fp32 weights, rounded to the dtype of the training. Checkpoints
    of earlier versions are loaded, too; their facts are the step. Raises CourseError, which names a file or a
    parameter, if something is missing, damaged or of another shape.
    """
    model: nn.Module = engine.model
    saved = training_state.read(folder, _trained(model))
    optimizer = optimizer_state.of(engine)
    tensors = _fitting(model, saved, folder)
    kinds = sorted({kind for _, kind, _ in tensors} - {WEIGHT})
    with torch.no_grad(), optimizer.writing(kinds, saved.updates):
        for value, kind, stored in tensors:
            optimizer.write(value, kind, stored.contiguous())
    if saved.loss_scale:
        _set_loss_scale(engine, saved.loss_scale)
    _restore_generators(folder, rank, saved.ranks)
    return saved.facts


def _trained(model: nn.Module) -> list[str]:
    """Return the names of the trained parameters in the order of the optimizer's groups."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [names[parameter] for group in parameter_groups(model, 0.0) for parameter in group["params"]]


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    """Return the buffers of a model that its state dict has."""
    saved = model.state_dict(keep_vars=True)
    return {name: buffer for name, buffer in model.named_buffers() if name in saved}


def _shared(model: nn.Module) -> dict[str, str]:
    """Return the further names of parameters that have several, such as GPT-2's output layer → its embedding."""
    first = {parameter: name for name, parameter in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {name: first[parameter] for name, parameter in every if first[parameter] != name}


def _entries(model: nn.Module, optimizer: optimizer_state.OptimizerState, ranks: int, frozen: bool) -> list[_Entry]:
    """Return the tensors of a checkpoint in the order in which they are written; each rank owns about as many bytes."""
    # (name, parameter or buffer, dtype of the weight, kinds)
    every: list[tuple[str, Tensor, torch.dtype, list[str]]] = [
        (name, parameter, torch.float32, [WEIGHT, *optimizer.kinds(parameter)])
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
    if frozen:
        others: list[tuple[str, Tensor]] = [
            (name, parameter) for name, parameter in model.named_parameters() if not parameter.requires_grad
        ]
        others += _buffers(model).items()
        # A file begins with the widest dtypes.
        others.sort(key=lambda other: -other[1].dtype.itemsize)
        every += [(name, value, value.dtype, [WEIGHT]) for name, value in others]
    sizes = {name: len(kinds) * _shape(value).numel() * dtype.itemsize for name, value, dtype, kinds in every}
    owners = _owners(sizes, ranks)
    return [
        _Entry(name, kind, value, dtype, _shape(value), owners[name])
        for name, value, dtype, kinds in every
        for kind in kinds
    ]


def _owners(sizes: Mapping[str, int], ranks: int) -> dict[str, int]:
    """Return the rank that writes each parameter, given their bytes: the largest first, to the rank with the least."""
    bytes_of = [0] * ranks
    owners = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        owners[name] = bytes_of.index(min(bytes_of))
        bytes_of[owners[name]] += sizes[name]
    return owners


def _shape(value: Tensor) -> torch.Size:
    """Return the shape of a parameter, which ZeRO-3 keeps elsewhere, or of a buffer."""
    return torch.Size(getattr(value, "ds_shape", value.shape))


def _remove_earlier(folder: Path) -> None:
    """Remove the files of a rank that was killed while it saved the same step; the number of ranks may have changed."""
    for pattern in (state_files.FILE, "state-*.safetensors", "rng-*.pt"):
        for path in folder.glob(pattern):
            path.unlink()


def _fitting(model: nn.Module, saved: TrainingState, folder: Path) -> list[tuple[Tensor, str, state_files.Stored]]:
    """Return each parameter or buffer of a model with the kind of a stored tensor, and that tensor."""
    found = []
    targets: dict[str, Tensor] = dict(model.named_parameters()) | _buffers(model)
    kinds: dict[str, list[str]] = {name: [] for name in targets}
    for name in saved.tensors:
        parameter, _, kind = name.rpartition("/")
        if parameter in targets:
            kinds[parameter].append(kind)
    for name, value in targets.items():
        if value.requires_grad and WEIGHT not in kinds[name]:
            raise CourseError(f"{folder}: {name}: a trained parameter that the checkpoint does not have")
        for kind in kinds[name]:
            stored = saved.tensors[key(name, kind)]
            if tuple(stored.shape) != tuple(_shape(value)):
                shapes = f"{list(stored.shape)}, expected {list(_shape(value))}"
                raise CourseError(f"{folder}: {key(name, kind)} has the shape {shapes}")
            found.append((value, kind, stored))
    return found


def _loss_scale(engine: Engine) -> LossScaleState | None:
    """Return the state of the loss scale of an engine, None without fp16."""
    if isinstance(engine, DeepSpeedEngine) and engine.dtype == torch.float16:
        scaler, skipped = engine.engine.optimizer.loss_scaler, engine.engine.skipped_steps
        if not scaler.dynamic:
            return LossScaleState(scaler.cur_scale, 0, 0, skipped)
        good_steps = scaler.cur_iter - scaler.last_overflow_iter - 1
        return LossScaleState(scaler.cur_scale, good_steps, scaler.cur_hysteresis - 1, skipped)
    if scale := engine.scale:
        return LossScaleState(scale.value, scale.good_steps, scale.tolerated, scale.skipped)
    return None


def _set_loss_scale(engine: Engine, saved: LossScaleState) -> None:
    if isinstance(engine, DeepSpeedEngine):
        scaler = engine.engine.optimizer.loss_scaler
        engine.engine.skipped_steps = saved.skipped
        if scaler.dynamic:
            scaler.cur_scale, scaler.cur_hysteresis = saved.value, saved.tolerated + 1
            # DeepSpeed counts the steps since the last overflow by their difference.
            scaler.cur_iter, scaler.last_overflow_iter = saved.good_steps, -1
    elif scale := engine.scale:
        scale.skipped = saved.skipped
        if not scale.wanted.loss_scale:
            scale.value, scale.good_steps, scale.tolerated = saved.value, saved.good_steps, saved.tolerated


def generators(device: torch.device) -> dict[str, Any]:
    """Return the states of the random generators that a rank uses, as tensors and plain values."""
    name, words, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (name, [int(word) for word in words], *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def _generators_of(rank: int) -> str:
    return f"rng-{rank}.pt"


def _restore_generators(folder: Path, rank: Rank, ranks: int) -> None:
    """Restore the random generators of this rank from a checkpoint that `ranks` ranks saved.

    A rank that did not exist then takes the generators of another one, and seeds them anew from their next number.
    """
    if (folder / state_files.FILE).exists():
        path = folder / _generators_of(rank.number % ranks)
    else:
        # of an earlier version
        path = folder / ("rng_state.pth" if ranks == 1 else f"rng_state_{rank.number % ranks}.pth")
    states = safe_load(path)
    try:
        _set_generators(states, rank.device)
    except DAMAGED as error:
        raise CourseError(f"{path}: not the states of random generators") from error
    if rank.number >= ranks:
        seed = int(torch.randint(1 << 31, ())) + rank.number
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)


def _set_generators(states: Mapping[str, Any], device: torch.device) -> None:
    random.setstate(states["python"])
    # An earlier version wrote an array, which safe_load.py does not build.
    if isinstance(states["numpy"][1], list):
        np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch" if "torch" in states else "cpu"])
    cuda = states.get("cuda")
    if cuda is not None and device.type == "cuda":
        # An earlier version wrote a list with the state of each card if there was one rank.
        torch.cuda.set_rng_state(cuda if isinstance(cuda, Tensor) else cuda[device.index], device)
