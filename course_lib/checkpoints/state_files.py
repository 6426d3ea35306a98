"""The files of a training checkpoint: weights and optimizer states by parameter name, and state.json.

A tensor is called `<parameter>/<kind>`. Kinds are `weight` and the optimizer's states: exp_avg and exp_avg_sq of AdamW,
momentum of Muon. The weights of trained parameters are in fp32, those of frozen ones in their own dtype. Every tensor
is whole, so that any number of ranks and any ZeRO stage can load what any other wrote. Each rank writes one file,
state-00000.safetensors for the first, with its share of the parameters; state.json says which file has a parameter.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, get_args

import torch
from torch import Tensor

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.errors import CourseError
from course_lib.files import naming, read_record, write_json

FILE = "state.json"
FORMAT = 1
WEIGHT = "weight"
# The names of dtypes in safetensors files.
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Stored(Protocol):
    """A tensor in a file: a memory-mapped one, or pieces of it in several files, which `contiguous` merges."""

    @property
    def shape(self) -> Sequence[int]:
        """Return the shape of the whole tensor."""

    def contiguous(self) -> Tensor:
        """Return the whole tensor."""


@dataclass(frozen=True)
class LossScaleState:
    """The state of fp16's loss scale."""

    value: float
    good_steps: int  # since the last overflow
    tolerated: int  # overflows before the scale halves
    skipped: int  # steps, in the whole run


@dataclass(frozen=True)
class TrainingState:
    """What a checkpoint holds, whatever number of ranks and ZeRO stage saved it."""

    tensors: Mapping[str, Stored]  # by `<parameter>/<kind>`; also persistent buffers, as `<buffer>/weight`
    updates: int  # of the optimizer; skipped steps do not count
    dtype: NumberFormat  # of the training
    ranks: int
    loss_scale: LossScaleState | None = None  # fp16
    shared: Mapping[str, str] = field(default_factory=dict)  # further names of parameters: GPT-2's output layer
    facts: Mapping[str, Any] = field(default_factory=dict)  # what the training loop adds
    masters: bool = True  # whether trained weights are the fp32 ones that the optimizer updates


def key(parameter: str, kind: str) -> str:
    """Return the name of a tensor in the files."""
    return f"{parameter}/{kind}"


def file_of(rank: int) -> str:
    """Return the name of the file that a rank writes."""
    return f"state-{rank:05d}.safetensors"


def write_facts(checkpoint: Path, state: TrainingState, files: Mapping[str, str]) -> None:
    """Write state.json. `files` says which file holds a parameter or buffer; the tensors themselves are not written."""
    content = {
        "format": FORMAT,
        "updates": state.updates,
        "dtype": state.dtype,
        "ranks": state.ranks,
        "loss_scale": asdict(state.loss_scale) if state.loss_scale else None,
        "facts": dict(state.facts),
        "shared": dict(state.shared),
        "files": dict(files),
    }
    with naming(checkpoint / FILE):
        write_json(checkpoint / FILE, content)


def read(checkpoint: Path) -> TrainingState:
    """Return the training state in a checkpoint, with memory-mapped tensors.

    Raises CourseError, which names a file, if one is missing or damaged, or written by a later version of the course.
    """
    path = checkpoint / FILE
    content = read_record(
        path, {"format": int, "updates": int, "dtype": str, "ranks": int, "facts": dict, "files": dict}
    )
    if content["format"] != FORMAT:
        raise CourseError(f"{path}: format {content['format']}, which this version of the course cannot read")
    if content["dtype"] not in get_args(NumberFormat):
        raise CourseError(f"{path}: dtype: found {content['dtype']!r}; allowed: {', '.join(get_args(NumberFormat))}")
    files = {str(name): Path(str(file)).name for name, file in content["files"].items()}
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(files.values())):
        for name, tensor in weight_files.weights(checkpoint / file).items():
            parameter, _, _ = name.rpartition("/")
            if files.get(parameter) == file:
                tensors[name] = tensor
    for name, file in files.items():
        if key(name, WEIGHT) not in tensors:
            raise CourseError(f"{checkpoint / file}: {name} is missing")
    return TrainingState(
        tensors,
        content["updates"],
        content["dtype"],
        content["ranks"],
        _loss_scale(path, content.get("loss_scale")),
        content.get("shared") or {},
        content["facts"],
    )


def _loss_scale(path: Path, values: Any) -> LossScaleState | None:
    if values is None:
        return None
    try:
        return LossScaleState(**values)
    except TypeError as error:
        raise CourseError(f"{path}: loss_scale: found {json.dumps(values)[:60]}") from error


class Writer:
    """Writes the tensors of a safetensors file one after the other, so that only one of them is in memory.

    The library of safetensors writes tensors that are all in memory. Format: github.com/huggingface/safetensors.
    """

    def __init__(self, file: BinaryIO, planned: Mapping[str, tuple[torch.dtype, Sequence[int]]]) -> None:
        """Write the header. `planned` has the dtype and shape of each tensor, in the order in which they will come.

        Tensors of wider dtypes must come first: each has to begin at a multiple of the size of its elements.
        """
        self.file = file
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, (dtype, shape) in planned.items():
            begin, end = end, end + torch.Size(shape).numel() * dtype.itemsize
            header[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
        text = json.dumps(header, ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        file.write(struct.pack("<Q", len(text)) + text)

    def write(self, tensor: Tensor) -> None:
        """Write the next tensor."""
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        self.file.write(flat.view(torch.uint8).numpy().data)


@contextmanager
def writer(path: Path, planned: Mapping[str, tuple[torch.dtype, Sequence[int]]]) -> Iterator[Writer]:
    """Open a file for the tensors in `planned`. Errors, such as a full disk, name the file."""
    with naming(path), path.open("wb") as file:
        yield Writer(file, planned)
