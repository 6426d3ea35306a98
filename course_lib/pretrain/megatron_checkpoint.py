"""Reader for the GPT checkpoints of Megatron-DeepSpeed: the tensors of each tensor-parallel rank.

Two layouts are read:

- One `layer_NN-model_RR-model_states.pt` per layer and rank, from DeepSpeed's pipeline engine. The number of the first
  layer differs between versions, so a file is identified by its content.
- One `mp_rank_RR_model_states.pt` per rank, from a training with --no-pipeline-parallel.

Tensors are memory-mapped, so this module reads only their names and shapes. Checkpoints of ZeRO stage 3, of Megatron-LM
and of versions before 2, whose query_key_value has another order, are not read.
"""

import re
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoints.deepspeed_shards import step_folder
from course_lib.checkpoints.safe_load import safe_load
from course_lib.errors import CourseError

State = dict[str, torch.Tensor]
LAYER_FILE = re.compile(r"layer_(\d+)-model_(\d+)-model_states\.pt")
RANK_FILE = re.compile(r"mp_rank_(\d+)_model_states\.pt")
# Buffers.
LEFT_OUT = re.compile(r"_extra_state$|rotary_emb\.inv_freq$")
# The embedding, and its copy in the last pipeline stage.
WORDS, HEAD = "embedding.word_embeddings.weight", "word_embeddings_for_head.weight"
# Training arguments that a conversion reads, with their types.
WHOLE, NUMBER = (int, "a whole number"), (int | float, "a number")
ARGUMENTS: dict[str, tuple[Any, str]] = {
    "num_layers": WHOLE, "num_attention_heads": WHOLE, "tensor_model_parallel_size": WHOLE,
    "make_vocab_size_divisible_by": WHOLE, "hidden_dropout": NUMBER, "attention_dropout": NUMBER,
    "init_method_std": NUMBER, "layernorm_epsilon": NUMBER,
}  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """What a conversion needs of a checkpoint."""

    folder: Path
    args: Namespace  # training arguments
    iteration: int  # training step
    ranks: list[State]  # tensors of each tensor-parallel rank, with names such as layers.0.input_layernorm.weight


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a step folder, or the one that the file `latest` in `path` names."""
    folder = step_folder(path)
    if folder is None:
        raise CourseError(f"{path}: no Megatron-DeepSpeed checkpoint; allowed: global_stepN, or its parent")
    loaded = {int(match[1]): safe_load(folder / match[0]) for match in _numbered(folder, RANK_FILE)}
    meta = loaded.get(0, {})
    args, version = meta.get("args"), meta.get("checkpoint_version", 0)
    needed = {"num_layers", "num_attention_heads"}
    known = isinstance(version, int | float) and version >= 2
    if not isinstance(args, Namespace) or not needed <= vars(args).keys() or not known:
        raise CourseError(
            f"{folder}: no mp_rank_00_model_states.pt with the training arguments and checkpoint_version 2 or above; "
            "DeepSpeed's own tools merge ZeRO stage 3"
        )
    ranks = _from_layers(folder) or {rank: _tensors(whole.get("module") or {}) for rank, whole in loaded.items()}
    for name, (kinds, allowed) in ARGUMENTS.items():
        if not isinstance(value := getattr(args, name, None), kinds) and name in vars(args):
            raise CourseError(f"{folder}: the training argument {name} is {value!r}; allowed: {allowed}")
    expected = getattr(args, "tensor_model_parallel_size", len(ranks))
    if len(ranks) != expected or sorted(ranks) != list(range(expected)):
        raise CourseError(f"{folder}: files of the tensor ranks {sorted(ranks)}; expected: 0 to {expected - 1}")
    for rank, state in ranks.items():
        if (head := state.pop(HEAD, None)) is not None:
            require_copy(folder, WORDS, f"the output layer of tensor rank {rank}", state.get(WORDS, head), head)
    if not 0 < args.num_layers <= len(ranks[0]):
        found = len(ranks[0])
        raise CourseError(f"{folder}: num_layers is {args.num_layers!r}; tensor rank 0 has {found} tensors")
    return Checkpoint(folder, args, meta.get("iteration", 0), [ranks[rank] for rank in range(expected)])


def _from_layers(folder: Path) -> dict[int, State]:
    """Return the tensors of each rank from the pipeline engine's layer files; empty if there are none."""
    ranks: dict[int, State] = {}
    first = None
    for match in _numbered(folder, LAYER_FILE):
        state = safe_load(folder / match[0])
        if "word_embeddings.weight" in state:
            part = "embedding"
        elif state.keys() <= {"weight", "bias"}:
            part = "final_layernorm"
        else:
            first = int(match[1]) if first is None else first
            part = f"layers.{int(match[1]) - first}"
        known = ranks.setdefault(int(match[2]), {})
        for name, value in _tensors({part: state}).items():
            # The last pipeline stage may save the embedding once more, as the output layer.
            require_copy(folder, name, match[0], known.setdefault(name, value), value)
    return ranks


def require_copy(folder: Path, name: str, where: str, first: torch.Tensor, other: torch.Tensor) -> None:
    """Raise CourseError if two copies of a parameter, of which training updates each in the same way, differ."""
    if first is not other and not (first.shape == other.shape and torch.equal(first, other)):
        raise CourseError(
            f"{folder}: {name} of {where} is not the copy that it should be: the training diverged; "
            "allowed: a checkpoint whose ranks have the same values"
        )


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """Return the matches of a pattern with the names of the files in a folder, in the order of their first number."""
    matches = [match for path in folder.iterdir() if (match := pattern.fullmatch(path.name))]
    return sorted(matches, key=lambda match: int(match[1]))


def _tensors(tree: dict[str, Any]) -> State:
    """Return the tensors of a nested dict under the names of the layer files."""
    named = {name.removeprefix("language_model.").removeprefix("encoder."): value for name, value in _flat(tree)}
    return {name: value for name, value in named.items() if torch.is_tensor(value) and not LEFT_OUT.search(name)}


def _flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the (key, value) pairs of a nested dict, with nested keys joined by dots."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
