"""Loading a ZeRO checkpoint on another number of ranks than the number that saved it.

DeepSpeed 0.19.8 loads shards only on the same number of ranks. Its universal checkpoints lift this limit, but not for
ZeRO stage 3 with two optimizer groups (runtime/zero/stage3.py; github.com/deepspeedai/DeepSpeed/issues/7546). Here,
each rank memory-maps all shards and passes its own part of weights and moments to DeepSpeed as if it were its shard.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoints.deepspeed_shards import step_folder
from course_lib.errors import CourseError

RANK = re.compile(r"zero_pp_rank_(\d+)_")
FROZEN = "frozen_param_fragments"
Shard = dict[str, Any]


def load(engine: Any, checkpoint: Path) -> None:
    """Load a checkpoint of the same ZeRO stage that another number of ranks saved, before the engine's first step."""
    folder, stage = step_folder(checkpoint), engine.zero_optimization_stage()
    if folder is None:
        raise CourseError(f"{checkpoint}: no global_step folder of DeepSpeed")
    # An engine loads once, so its methods stay replaced.
    if stage:
        engine._load_zero_checkpoint = partial(_load_zero, engine, folder)
    if stage == 3:
        # Stage 3 has one file of model states per rank. They differ only in the fragments of frozen parameters.
        first_rank = engine._get_ckpt_name(str(checkpoint), folder.name, pp_placeholder="0")
        engine._get_all_ckpt_names = lambda *_: [first_rank]
        engine.load_module_state_dict = partial(_load_module, engine, folder, engine.load_module_state_dict)
    engine.load_checkpoint(str(checkpoint))


def part(pieces: Sequence[torch.Tensor], start: int, length: int) -> torch.Tensor:
    """Return the elements start … start + length - 1 of the concatenation of flat tensors, padded with zeros."""
    result = pieces[0].new_zeros(length)
    ends = list(accumulate(piece.numel() for piece in pieces))
    for piece, end in zip(pieces, ends, strict=True):
        begin = end - piece.numel()
        low, high = max(start, begin), min(start + length, end)
        if low < high:
            result[low - start : high - start] = piece[low - begin : high - begin]
    return result


def _read(folder: Path, kind: str) -> list[Shard]:
    """Return the files of all ranks in order of the ranks, memory-mapped. `kind` is `optim` or `model`."""
    files = {int(match[1]): path for path in folder.glob(f"*_{kind}_states.pt") if (match := RANK.search(path.name))}
    if sorted(files) != list(range(len(files))) or not files:
        raise CourseError(f"{folder}: shards of ranks {sorted(files)} found; expected all ranks from 0")
    # As DeepSpeed does when it resumes, this reads the loss scaler, a Python object.
    return [torch.load(files[rank], map_location="cpu", weights_only=False, mmap=True) for rank in range(len(files))]


def _load_zero(engine: Any, folder: Path, *_: Any, **__: Any) -> bool:
    """Give this rank's optimizer its part of the shards; a replacement for the engine's `_load_zero_checkpoint`."""
    from deepspeed import comm

    optimizer = engine.optimizer
    shards = [file["optimizer_state_dict"] for file in _read(folder, "optim")]
    rank, ranks = (count(group=optimizer.dp_process_group) for count in (comm.get_rank, comm.get_world_size))
    regroup = _stage_3 if engine.zero_optimization_stage() == 3 else _stage_1_or_2
    optimizer.load_state_dict(
        [regroup(engine, folder, shards, rank)] * ranks,
        load_optimizer_states=True,
        load_from_fp32_weights=engine.zero_load_from_fp32_weights(),
    )
    return True


def _stage_1_or_2(engine: Any, _folder: Path, shards: list[Shard], rank: int) -> Shard:
    """Return this rank's shard for stages 1 and 2: its part of each group's flat tensor, padded at the end only."""
    weights, states = [], {}
    for index, target in enumerate(engine.optimizer.single_partition_of_fp32_groups):
        # The weights are saved without padding, the moments with it.
        pieces = [shard["single_partition_of_fp32_groups"][index] for shard in shards]
        saved = [shard["base_optimizer_state"]["state"][index] for shard in shards]
        mine = partial(part, start=rank * target.numel(), length=target.numel())
        weights.append(mine(pieces))
        states[index] = {
            key: mine([old[key][: piece.numel()] for old, piece in zip(saved, pieces, strict=True)])
            if _is_flat(value)
            else value
            for key, value in saved[0].items()
        }
    base = shards[0]["base_optimizer_state"] | {"state": states}
    return shards[0] | {"base_optimizer_state": base, "single_partition_of_fp32_groups": weights}


def _stage_3(engine: Any, folder: Path, shards: list[Shard], rank: int) -> Shard:
    """Return this rank's shard for stage 3.

    Each parameter is flattened, padded and cut into equal parts. A shard holds one part of every parameter, in flat
    tensors for groups of parameters (sub-groups), whose number may depend on the number of ranks.
    """
    optimizer = engine.optimizer
    # name → (sub-group, offset of the rank's part in it, size of that part, elements of the parameter)
    places: dict[str, tuple[int, int, int, int]] = {}
    for index, shapes in enumerate(_read(folder, "model")[0]["param_shapes"]):
        offset = 0
        for name, shape in shapes.items():
            size = -(-shape.numel() // len(shards))
            places[name] = (index, offset, size, shape.numel())
            offset += size

    def mine(group: list[Any], flat: Callable[[Shard, int], torch.Tensor]) -> torch.Tensor:
        """Return this rank's parts of the parameters in a sub-group; `flat` reads a flat tensor of a shard."""
        parts = []
        for parameter in group:
            index, offset, size, elements = places[engine.param_names[parameter]]
            whole = [flat(shard, index)[offset : offset + size] for shard in shards]
            length = parameter.partition_numel()
            kept = max(0, min(length, elements - rank * length))
            parts.append(torch.nn.functional.pad(part(whole, rank * length, kept), (0, length - kept)))
        return torch.cat(parts)

    def moment(key: str) -> Callable[[Shard, int], torch.Tensor]:
        return lambda shard, index: shard["optimizer_state_dict"]["state"][index][key]

    weights, states = [], {}
    for number, group in enumerate(optimizer.fp16_groups):
        weights.append(mine(group, lambda shard, index: shard["fp32_flat_groups"][index]))
        old = shards[0]["optimizer_state_dict"]["state"][places[engine.param_names[group[0]]][0]]
        states[number] = {key: mine(group, moment(key)) if _is_flat(value) else value for key, value in old.items()}
    groups = [
        saved | {"params": [sub for sub, owner in optimizer.sub_group_to_group_id.items() if owner == index]}
        for index, saved in enumerate(shards[0]["optimizer_state_dict"]["param_groups"])
    ]
    return shards[0] | {"optimizer_state_dict": {"state": states, "param_groups": groups}, "fp32_flat_groups": weights}


def _is_flat(value: Any) -> bool:
    """Return whether an optimizer state belongs to the elements of a flat tensor; a step count does not."""
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _load_module(engine: Any, folder: Path, original: Callable[..., None], checkpoint: Shard, **options: Any) -> None:
    """Load the module as the engine does, with this rank's parts of the frozen parameters that the checkpoint has."""
    if checkpoint.get(FROZEN):
        from deepspeed import comm

        rank = comm.get_rank(group=engine.optimizer.dp_process_group)
        files = _read(folder, "model")
        sizes = {engine.param_names[each]: each.ds_tensor.numel() for each in engine.module.parameters()}
        checkpoint[FROZEN] = {
            name: part([file[FROZEN][name] for file in files], rank * sizes[name], sizes[name])
            for name in checkpoint[FROZEN]
        }
    original(checkpoint=checkpoint, **options)
