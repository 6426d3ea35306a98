"""Reader for GPT checkpoints of Megatron-DeepSpeed and Megatron-LM: the tensors of each tensor-parallel rank.

A checkpoint has one of three layouts:

- One `layer_NN-model_RR-model_states.pt` per layer and rank, from DeepSpeed's pipeline engine. The number of the first
  layer differs between versions, so a file is identified by its content.
- One `mp_rank_RR_model_states.pt` per rank, without a pipeline.
- One `mp_rank_RR/model_optim_rng.pt` per rank, from Megatron-LM.

Tensors are memory-mapped, so this module reads only their names and shapes. Checkpoints of ZeRO stage 3 and those with
Megatron-LM's pipeline ranks have other files and are not read; Megatron's own tools merge them.
"""

import re
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoints.safe_load import safe_load
from course_lib.errors import CourseError

State = dict[str, torch.Tensor]
LAYER_FILE = re.compile(r"layer_(\d+)(?:-model_(\d+))?-model_states\.pt")
RANK_FILE = re.compile(r"mp_rank_(\d+)(?:_model_states\.pt|/model_optim_rng\.pt)")
# Patterns for tensor names in other versions, and their replacements.
RENAMED = (
    (re.compile(r"^(language_model\.)?((encoder|transformer)\.)?"), ""),
    (re.compile(r"^final_norm\."), "final_layernorm."),
    (re.compile(r"\.attention\."), ".self_attention."),
    (re.compile(r"\.(input|post_attention)_norm\."), r".\1_layernorm."),
)
# Buffers, and the copy of the embedding in the last pipeline stage.
LEFT_OUT = re.compile(r"_extra_state$|rotary_emb\.inv_freq$|^word_embeddings_for_head\.")


@dataclass(frozen=True)
class Checkpoint:
    """What a conversion needs of a checkpoint."""

    folder: Path
    args: Namespace  # training arguments; empty if the checkpoint has none
    version: float  # format version, which determines the row order in query_key_value
    iteration: int  # training step
    ranks: list[State]  # tensors of each tensor-parallel rank, with names such as layers.0.input_layernorm.weight


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a step folder, or the one that the tracker file in `path` names."""
    folder = step_folder(path)
    files = {
        int(match[1]): file
        for file in sorted(folder.glob("mp_rank_*_model_states.pt")) or sorted(folder.glob("mp_rank_*/*.pt"))
        if (match := RANK_FILE.fullmatch(str(file.relative_to(folder))))
    }
    if 0 not in files:
        raise CourseError(
            f"{folder}: no mp_rank_00 file; checkpoints of ZeRO stage 3, and Megatron-LM's with pipeline ranks, must "
            "be merged by their own tools first"
        )
    loaded = {rank: safe_load(file) for rank, file in files.items()}
    ranks = _from_layers(folder) or {rank: _from_module(files[rank], whole) for rank, whole in loaded.items()}
    meta = loaded[0]
    args = meta["args"] if isinstance(meta.get("args"), Namespace) else Namespace()
    expected = getattr(args, "tensor_model_parallel_size", getattr(args, "model_parallel_size", len(ranks)))
    if sorted(ranks) != list(range(expected)):
        raise CourseError(f"{folder}: files of the tensor ranks {sorted(ranks)}; expected: 0 to {expected - 1}")
    # Megatron also treats a missing version as 0.
    version, iteration = (meta.get(name, 0) for name in ("checkpoint_version", "iteration"))
    if not isinstance(version, int | float) or not isinstance(iteration, int):
        raise CourseError(f"{files[0]}: checkpoint_version {version!r}, iteration {iteration!r}; allowed: numbers")
    return Checkpoint(folder, args, float(version), iteration, [ranks[rank] for rank in range(expected)])


def step_folder(path: Path) -> Path:
    """Return the step folder: `path` itself, or the folder that its tracker file names."""
    if any(path.glob("*mp_rank_*")):
        return path
    for tracker, prefix in (("latest", ""), ("latest_checkpointed_iteration.txt", "iter_")):
        if (path / tracker).is_file():
            named = (path / tracker).read_text(encoding="utf8", errors="replace").strip()
            step = path / (f"{prefix}{int(named):07d}" if prefix and named.isdecimal() else Path(named).name)
            if named and step.is_dir():
                return step
            raise CourseError(f"{path / tracker}: names {step.name!r}, which is not there")
    raise CourseError(f"{path}: no Megatron checkpoint; allowed: a folder with mp_rank_* files, or with `latest`")


def _from_layers(folder: Path) -> dict[int, State]:
    """Return the tensors of each rank from the pipeline engine's layer files; empty if there are none."""
    matches = [match for path in folder.iterdir() if (match := LAYER_FILE.fullmatch(path.name))]
    files = sorted((int(match[1]), int(match[2] or 0), match[0]) for match in matches)
    ranks: dict[int, State] = {}
    first = None
    for number, rank, name in files:
        state = safe_load(folder / name)
        if "word_embeddings.weight" in state:
            part = "embedding"
        elif state.keys() <= {"weight", "bias"}:
            part = "final_layernorm"
        else:
            first = number if first is None else first
            part = f"layers.{number - first}"
        held, tensors = ranks.setdefault(rank, {}), _tensors({part: state})
        if held.keys() & tensors:
            raise CourseError(f"{folder / name}: a second {part}; is it an untied output head?")
        held |= tensors
    return ranks


def _from_module(file: Path, whole: dict[str, Any]) -> State:
    """Return the tensors of one rank from its whole-model file."""
    module = whole.get("module") or whole.get("model")
    if not isinstance(module, dict):
        raise CourseError(f"{file}: no weights under `module` or `model`")
    return _tensors(module)


def _tensors(tree: dict[str, Any]) -> State:
    """Return the tensors of a nested dict under their current names."""
    state = {}
    for name, value in _flat(tree):
        for pattern, replacement in RENAMED:
            name = pattern.sub(replacement, name)
        if isinstance(value, torch.Tensor) and not LEFT_OUT.search(name):
            state[name] = value
    return state


def _flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the (key, value) pairs of a nested dict, with nested keys joined by dots."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
