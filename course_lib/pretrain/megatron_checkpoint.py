"""Reader for Megatron-DeepSpeed and Megatron-LM GPT checkpoints: embedding, layers and final norm.

A checkpoint has one of three layouts:

- One `layer_NN-model_RR-model_states.pt` per layer and tensor-parallel rank, from DeepSpeed's pipeline engine. Layer
  numbering differs between versions, so the reader identifies each file by its content.
- One `mp_rank_RR_model_states.pt` per tensor-parallel rank, without a pipeline.
- One `mp_rank_RR/model_optim_rng.pt` per tensor-parallel rank, from Megatron-LM.

Each part has one state dict per tensor-parallel rank; megatron_weights.py merges them. Tensors are memory-mapped, so
this module reads only their names and shapes.
"""

import re
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoints.safe_load import safe_load
from course_lib.errors import CourseError, UsageError

State = dict[str, torch.Tensor]
STEP = re.compile(r"global_step\d+|iter_\d+|release")
LAYER_FILE = re.compile(r"layer_\d+(-model_\d+)?-model_states\.pt")
RANK_FILE = re.compile(r"mp_rank_\d+_model_states\.pt")
RANK_FOLDER = re.compile(r"mp_rank_(\d+)")
# Patterns for tensor names in other Megatron versions, and their replacements.
RENAMED = (
    (re.compile(r"^attention\."), "self_attention."),
    (re.compile(r"^(input|post_attention)_norm\."), r"\1_layernorm."),
)
IGNORED = ("_extra_state", "rotary_emb.inv_freq")  # buffers, not weights


@dataclass(frozen=True)
class Part:
    """The embedding, one layer or the final norm, with one file and one state dict per tensor-parallel rank."""

    files: list[Path]
    states: list[State]


@dataclass(frozen=True)
class Checkpoint:
    """The parts of a checkpoint that are needed for conversion."""

    folder: Path
    args: Namespace  # training arguments; empty if the checkpoint has none
    version: float  # checkpoint format version, which determines the row order in query_key_value
    iteration: int  # training step
    embedding: Part
    layers: list[Part]
    final_norm: Part

    @property
    def tensor_parallel(self) -> int:
        """Number of tensor-parallel ranks."""
        return len(self.embedding.states)


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a checkpoint from a step folder, or from the latest step in its parent folder.

    Raises CourseError if a file is missing, damaged or unsupported, and UsageError if there are several steps but no
    tracker file that names the latest.
    """
    folder = step_folder(path)
    layers, ranks = _numbered(folder, LAYER_FILE), _numbered(folder, RANK_FILE)
    if any(folder.glob("layer_*_expert_*")):
        raise CourseError(f"{folder}: a mixture of experts (layer_*_expert_* files), which GPT-2 has no place for")
    if layers:
        if not ranks:
            raise CourseError(f"{folder}: mp_rank_00_model_states.pt is missing, which holds the training arguments")
        meta = safe_load(ranks[0])
        parts = _from_layers(folder, layers)
    else:
        ranks = ranks or [rank / "model_optim_rng.pt" for rank in _numbered(folder, RANK_FOLDER)]
        if not ranks:
            raise CourseError(f"{folder}: {_nothing(folder)}")
        loaded = [safe_load(file) for file in ranks]
        meta = loaded[0]
        parts = _from_module(ranks, loaded)
    args = meta["args"] if isinstance(meta.get("args"), Namespace) else Namespace()
    version, iteration = (_number(ranks[0], meta, name) for name in ("checkpoint_version", "iteration"))
    checkpoint = Checkpoint(folder, args, version, int(iteration), *parts)
    _check_counts(checkpoint)
    return checkpoint


def step_folder(path: Path) -> Path:
    """Return the step folder: `path` itself, the folder named in its tracker file, or the only step folder in it.

    Raises CourseError if there is no checkpoint, and UsageError if there are several steps but no tracker file.
    """
    if not path.is_dir():
        found = "is a file" if path.exists() else "no such folder"
        raise CourseError(f"{path}: {found}, expected a checkpoint folder")
    if any(path.glob("layer_*")) or any(path.glob("*mp_rank_*")):
        return path
    for tracker, prefix in (("latest", ""), ("latest_checkpointed_iteration.txt", "iter_")):
        if (path / tracker).is_file():
            named = (path / tracker).read_text(encoding="utf8", errors="replace").strip()
            step = path / (f"{prefix}{int(named):07d}" if prefix and named.isdecimal() else Path(named).name)
            if named and step.is_dir():
                return step
            raise CourseError(f"{path / tracker}: names {step.name!r}, which is not there")
    steps = sorted(entry for entry in path.iterdir() if STEP.fullmatch(entry.name))
    if not steps:
        raise CourseError(f"{path}: no Megatron checkpoint (no layer_*, no mp_rank_*, no `latest`)")
    if len(steps) > 1:
        raise UsageError(f"{path}: several steps; allowed: one of {', '.join(step.name for step in steps)}")
    return steps[0]


def _nothing(folder: Path) -> str:
    """Return the reason why a folder contains no readable checkpoint, for the error message."""
    if any(folder.glob("zero_pp_rank_*_model_states.pt")):
        return "ZeRO stage 3, weights spread over the data ranks: run the zero_to_fp32.py beside it first"
    if any(folder.glob("mp_rank_*_*")):
        return "Megatron-LM's form with pipeline ranks; merge them with its own tools first"
    return "no layer_*-model_states.pt and no mp_rank_* file"


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    return sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))


def _number(path: Path, meta: dict[str, Any], name: str) -> float:
    """Return the number stored under `name` in the checkpoint metadata, or 0 if it is missing.

    Raises CourseError, with `path` in the message, if the value is not a number.
    """
    # Megatron also treats a missing version as 0.
    value = meta.get(name, 0)
    if not isinstance(value, int | float):
        raise CourseError(f"{path}: {name} is a {type(value).__name__}, expected a number")
    return float(value)


def _check_counts(checkpoint: Checkpoint) -> None:
    """Check the number of tensor-parallel ranks and layers against the training arguments.

    Raises CourseError if they differ, or if there are no layers.
    """
    args = checkpoint.args
    ranks = getattr(args, "tensor_model_parallel_size", getattr(args, "model_parallel_size", None))
    width, depth = checkpoint.tensor_parallel, len(checkpoint.layers)
    for found, count, expected in (
        (f"{width} tensor ranks", width, ranks),
        (f"{depth} layers", depth, getattr(args, "num_layers", None)),
    ):
        if expected is not None and expected != count:
            if count:
                found = f"{found} (the last is {checkpoint.layers[-1].files[-1].name})"
            raise CourseError(f"{checkpoint.folder}: files of {found}, its arguments say {expected}")
    if not checkpoint.layers:
        raise CourseError(f"{checkpoint.folder}: no transformer layers")


def _canonical(state: dict[str, Any]) -> State:
    """Return the tensors from a state dict under their current names, without the buffers in IGNORED."""
    result = {}
    for key, value in state.items():
        for pattern, name in RENAMED:
            key = pattern.sub(name, str(key))
        if isinstance(value, torch.Tensor) and not key.endswith(IGNORED):
            result[key] = value
    return result


def _from_layers(folder: Path, files: list[Path]) -> tuple[Part, list[Part], Part]:
    """Return the embedding, layers and final norm from the pipeline engine's layer files."""
    grouped: dict[int, dict[int, Path]] = {}
    for file in files:
        index, *rank = (int(number) for number in re.findall(r"\d+", file.name))
        grouped.setdefault(index, {})[rank[0] if rank else 0] = file
    ranks = range(1 + max(rank for by_rank in grouped.values() for rank in by_rank))
    kinds: dict[str, dict[int, Part]] = {"embedding": {}, "layer": {}, "final norm": {}}
    for index, by_rank in sorted(grouped.items()):
        if missing := [rank for rank in ranks if rank not in by_rank]:
            raise CourseError(f"{folder / f'layer_{index:02d}-model_{missing[0]:02d}-model_states.pt'}: missing")
        part = Part([by_rank[rank] for rank in ranks], [_canonical(safe_load(by_rank[rank])) for rank in ranks])
        kinds[_kind(part)][index] = part
    for kind in ("embedding", "final norm"):
        if (count := len(kinds[kind])) != 1:
            raise CourseError(
                f"{folder}: {count} layer files hold the {kind}, expected one"
                if count
                else f"{folder}: no layer files hold the {kind}, expected one"
            )
    layers = kinds["layer"]
    for index in range(min(layers, default=0), max(layers, default=0)):
        if index not in layers:
            raise CourseError(f"{folder / f'layer_{index:02d}-model_00-model_states.pt'}: missing")
    return next(iter(kinds["embedding"].values())), list(layers.values()), next(iter(kinds["final norm"].values()))


def _kind(part: Part) -> str:
    """Return the kind of a layer file, based on its content: "embedding", "layer" or "final norm".

    The number in the file name depends on the Megatron-DeepSpeed version, so it does not identify the kind. Raises
    CourseError if the file contains anything else.
    """
    state = part.states[0]
    if "word_embeddings.weight" in state:
        return "embedding"
    if any(key.startswith("self_attention.") for key in state):
        return "layer"
    if set(state) <= {"weight", "bias"} and "weight" in state and state["weight"].dim() == 1:
        return "final norm"
    if any(value.dim() == 2 for value in state.values()):
        raise CourseError(f"{part.files[0]}: an untied output head; GPT-2 shares it with the embedding")
    held = ", ".join(state) or "no tensors"
    raise CourseError(f"{part.files[0]}: neither an embedding, a layer nor a norm ({held})")


def _from_module(files: list[Path], loaded: list[dict[str, Any]]) -> tuple[Part, list[Part], Part]:
    """Return the embedding, layers and final norm from one file per tensor-parallel rank.

    `loaded` contains the contents of `files`, in the same order.
    """
    ranks: list[dict[str, State]] = []
    for rank, (file, whole) in enumerate(zip(files, loaded, strict=True)):
        if int(RANK_FOLDER.findall(str(file))[-1]) != rank:
            raise CourseError(f"{file}: the file of rank {rank} is missing")
        module = next((whole[key] for key in ("module", "model") if isinstance(whole.get(key), dict)), None)
        if module is None:
            raise CourseError(f"{file}: no weights under `module` or `model`")
        states: dict[str, State] = {}
        for key, value in _flat(module):
            if target := _place(file, key):
                states.setdefault(target[0], {})[target[1]] = value
        ranks.append({name: _canonical(state) for name, state in states.items()})
    parts = {name: Part(files, [states.get(name, {}) for states in ranks]) for name in ranks[0]}
    for name in ("embedding", "final norm"):
        if name not in parts:
            raise CourseError(f"{files[0]}: no {name} in it")
    count = len(parts) - 2
    for index in range(count):
        if str(index) not in parts:
            raise CourseError(f"{files[0]}: layer {index} is missing")
    return parts["embedding"], [parts[str(index)] for index in range(count)], parts["final norm"]


def _flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the (key, value) pairs of a nested dict, with nested keys joined by dots."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _place(file: Path, key: str) -> tuple[str, str] | None:
    """Return the part that a weight in a whole-model file belongs to, and the weight's name in a layer file.

    The part is "embedding", "final norm" or the layer number. Return None for a copy of another weight. Raises
    CourseError if GPT-2 has no such weight.
    """
    key = key.removeprefix("language_model.")
    if match := re.fullmatch(r"(?:encoder|transformer)\.layers\.(\d+)\.(.+)", key):
        return match[1], match[2]
    if match := re.fullmatch(r"(?:encoder|transformer)\.final_(?:layer)?norm\.(.+)", key):
        return "final norm", match[1]
    if key.startswith("embedding."):
        return "embedding", key.removeprefix("embedding.")
    if key.startswith("word_embeddings_for_head."):
        return None
    if "expert" in key:
        raise CourseError(f"{file}: a mixture of experts ({key}), which GPT-2 has no place for")
    if key.startswith("output_layer."):
        raise CourseError(f"{file}: an untied output head ({key}); GPT-2 shares it with the embedding")
    if key.startswith("decoder."):
        raise CourseError(f"{file}: Megatron-Core's names ({key}); the older GPTModel of Megatron is expected")
    raise CourseError(f"{file}: GPT-2 has no place for {key}")
