"""Reader for the checkpoints of earlier versions: DeepSpeed's files for any ZeRO stage and number of ranks.

A shard holds flat tensors, one for each group of parameters. In stages 1 and 2, a group is flattened, padded at its end
and cut into one part for each rank. In stage 3, each parameter is flattened, padded and cut, and a flat tensor joins
the rank's parts of a group. DeepSpeed's own readers unpickle without restrictions; here, safe_load.py restricts it.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.safe_load import Inert, safe_load
from course_lib.checkpoints.state_files import WEIGHT, LossScaleState, Stored, TrainingState, key
from course_lib.errors import CourseError, UsageError, one_line

RANK = re.compile(r"zero_pp_rank_(\d+)_")
# What a file with other content than DeepSpeed's raises.
DAMAGED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError)
Shard = dict[str, Any]


@dataclass(frozen=True)
class Pieces:
    """A tensor whose elements lie in several flat tensors, one after the other."""

    flat: list[Tensor]
    shape: Sequence[int]

    def contiguous(self) -> Tensor:
        """Return the whole tensor."""
        return torch.cat(self.flat).view(torch.Size(self.shape))


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


def read_state(checkpoint: Path, trained: Sequence[str] = ()) -> TrainingState:
    """Return the training state in a checkpoint, with memory-mapped tensors.

    `trained` are the names of the trained parameters in the order of the optimizer, which the files of stage 0 do not
    have. Without the names, the weights of stage 0 are those of the forward pass, and there is no optimizer state.

    Raises CourseError, which names a file or the folder, if something is missing or damaged, or would run code.
    """
    folder = step_folder(checkpoint)
    states = sorted(folder.glob("*_model_states.pt")) if folder else []
    if not folder or not states:
        raise CourseError(f"{checkpoint}: no state.json and no *_model_states.pt, not a checkpoint")
    model = safe_load(states[0])
    shards = _read(folder, "optim") if any(folder.glob("*_optim_states.pt")) else []
    try:
        return _state(model, [shard["optimizer_state_dict"] for shard in shards], folder, trained)
    except DAMAGED as error:
        raise CourseError(f"{folder}: shards not readable: {one_line(error)}") from error


def _read(folder: Path, kind: str) -> list[Shard]:
    """Return the files of all ranks in order of the ranks, memory-mapped. `kind` is `optim` or `model`."""
    files = {int(match[1]): path for path in folder.glob(f"*_{kind}_states.pt") if (match := RANK.search(path.name))}
    if sorted(files) != list(range(len(files))) or not files:
        raise CourseError(f"{folder}: shards of ranks {sorted(files)} found; expected all ranks from 0")
    return [safe_load(files[rank]) for rank in range(len(files))]


def _state(model: Shard, shards: list[Shard], folder: Path, trained: Sequence[str]) -> TrainingState:
    """Return the training state from the model states of the first rank and the optimizer states of all ranks."""
    dtype = _dtype(model.get("ds_config") or {})
    ranks = int(model["dp_world_size"])
    if shards and len(shards) != ranks:
        raise CourseError(f"{folder}: shards of {len(shards)} ranks found; expected {ranks}")
    shared: dict[str, str] = dict(model.get("shared_params") or {})
    tensors: dict[str, Stored] = {}
    if not shards:
        shared = _tied(model["module"])
        tensors |= _module(model, shared)
        tensors |= _stage_0(model["optimizer"], trained)
        updates, scaler = _updates_of_stage_0(model["optimizer"]), model["optimizer"]
    elif "fp32_flat_groups" in shards[0]:
        tensors |= _frozen_of_stage_3(model, folder)
        tensors |= _stage_3(model["param_shapes"], shards)
        updates, scaler = _updates(shards[0]["optimizer_state_dict"]), _fields(shards[0]["loss_scaler"])
    else:
        tensors |= _module(model, shared)
        tensors |= _stages_1_and_2(model["param_shapes"], shards)
        # In bf16, stage 1 has no loss scaler.
        updates, scaler = _updates(shards[0]["base_optimizer_state"]), _fields(shards[0].get("loss_scaler"))
    scale = _loss_scale(scaler, int(model["skipped_steps"])) if dtype == "fp16" else None
    facts = {"step": int(model["global_steps"])}
    return TrainingState(tensors, updates, dtype, ranks, scale, shared, facts, masters=bool(shards or trained))


def _dtype(settings: Mapping[str, Any]) -> NumberFormat:
    formats: tuple[NumberFormat, ...] = ("bf16", "fp16")
    enabled = (name for name in formats if (settings.get(name) or {}).get("enabled") is True)
    return next(enabled, "fp32")


def _module(model: Shard, shared: Mapping[str, str]) -> dict[str, Stored]:
    """Return the weights of the forward pass and persistent buffers."""
    return {key(name, WEIGHT): value for name, value in model["module"].items() if name not in shared}


def _tied(module: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the names of tensors that are stored once but have several names: each further name → the first one."""
    first: dict[tuple[int, torch.Size], str] = {}
    tied = {}
    for name, value in module.items():
        found = first.setdefault((value.data_ptr(), value.shape), name)
        if found != name and value.numel():
            tied[name] = found
    return tied


def _stage_0(optimizer: Shard, trained: Sequence[str]) -> dict[str, Stored]:
    """Return fp32 weights and moments of stage 0, which each rank has as a whole."""
    tensors: dict[str, Stored] = {}
    if not trained:
        return tensors
    # In fp32, the weights are those of the forward pass, and the state is that of AdamW alone.
    if "fp32_groups" in optimizer:
        masters = [weight for group in optimizer["fp32_groups"] for weight in group]
        tensors |= {key(name, WEIGHT): weight for name, weight in zip(trained, masters, strict=True)}
    states = optimizer.get("optimizer_state_dict", optimizer)["state"]
    for number, name in enumerate(trained):
        tensors |= {key(name, kind): value for kind, value in _moments(states.get(number, {})).items()}
    return tensors


def _stages_1_and_2(groups: list[Mapping[str, torch.Size]], shards: list[Shard]) -> dict[str, Stored]:
    """Return fp32 weights and moments of stages 1 and 2."""
    tensors: dict[str, Stored] = {}
    for number, shapes in enumerate(groups):
        # The weights are saved without the padding at the end of a group, the moments with it.
        flats = {WEIGHT: [shard["single_partition_of_fp32_groups"][number] for shard in shards]}
        states = [_moments(shard["base_optimizer_state"]["state"].get(number, {})) for shard in shards]
        flats |= {kind: [state[kind] for state in states] for kind in states[0]}
        for kind, flat in flats.items():
            start = 0
            for name, shape in shapes.items():
                length = math.prod(shape)
                tensors[key(name, kind)] = Pieces(list(_cut(flat, start, length)), shape)
                start += length
    return tensors


def _stage_3(groups: list[Mapping[str, torch.Size]], shards: list[Shard]) -> dict[str, Stored]:
    """Return fp32 weights and moments of stage 3."""
    tensors: dict[str, Stored] = {}
    for number, shapes in enumerate(groups):
        flats = {WEIGHT: [shard["fp32_flat_groups"][number] for shard in shards]}
        states = [_moments(shard["optimizer_state_dict"]["state"].get(number, {})) for shard in shards]
        flats |= {kind: [state[kind] for state in states] for kind in states[0]}
        for kind, flat in flats.items():
            start = 0
            for name, shape in shapes.items():
                length = math.prod(shape)
                size = -(-length // len(shards))
                parts = [each[start : start + size] for each in flat]
                # The parts of the last ranks are padded.
                tensors[key(name, kind)] = Pieces(list(_cut(parts, 0, length)), shape)
                start += size
    return tensors


def _frozen_of_stage_3(model: Shard, folder: Path) -> dict[str, Stored]:
    """Return persistent buffers, and frozen weights if they were saved; each rank has a part of each weight."""
    tensors: dict[str, Stored] = {key(name, WEIGHT): model["module"][name] for name in model["buffer_names"] or ()}
    if model["frozen_param_shapes"]:
        fragments = [file["frozen_param_fragments"] for file in _read(folder, "model")]
        for name, shape in model["frozen_param_shapes"].items():
            parts = [each[name].flatten() for each in fragments]
            tensors[key(name, WEIGHT)] = Pieces(list(_cut(parts, 0, math.prod(shape))), shape)
    return tensors


def _cut(flat: list[Tensor], start: int, length: int) -> Iterator[Tensor]:
    """Yield the elements start … start + length - 1 of the concatenation of flat tensors, as views of these."""
    begin = 0
    for each in flat:
        end = begin + each.numel()
        low, high = max(start, begin), min(start + length, end)
        if low < high:
            yield each[low - begin : high - begin]
        begin = end
    if begin < start + length:
        raise ValueError(f"a group has {begin} elements, expected {start + length} or more")


def _moments(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the optimizer's states that have a value for each element, which the step count has not."""
    return {kind: value for kind, value in state.items() if isinstance(value, Tensor) and kind != "step"}


def _updates(optimizer: Shard) -> int:
    """Return the number of updates that a torch optimizer counted."""
    return max((int(state["step"]) for state in optimizer["state"].values() if state), default=0)


def _updates_of_stage_0(optimizer: Shard) -> int:
    return _updates(optimizer.get("optimizer_state_dict", optimizer))


def _fields(scaler: Any) -> Mapping[str, Any]:
    """Return the fields of a pickled loss scaler, whose class safe_load.py does not import."""
    return scaler.fields if isinstance(scaler, Inert) else {}


def _loss_scale(scaler: Mapping[str, Any], skipped: int) -> LossScaleState:
    """Return the loss scale from the fields of DeepSpeed's scaler; a fixed scale has nothing but its value."""
    last_overflow = scaler.get("last_overflow_iter", -1)
    good_steps = int(scaler.get("cur_iter", 0)) - int(-1 if last_overflow is None else last_overflow) - 1
    return LossScaleState(float(scaler["cur_scale"]), good_steps, int(scaler.get("cur_hysteresis", 1)) - 1, skipped)
