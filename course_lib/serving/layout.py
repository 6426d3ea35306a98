"""The files in a FasterTransformer folder for a given configuration: names, shapes, and axes split between ranks.

Each file contains only row-major, little-endian values, without a header. The exporter, checker and reader therefore
all rely on this list. Symbols: V vocabulary size, H hidden size, I inner size, L layers, n heads, d = H/n, N ranks, P
prefix length.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

from course_lib.checkpoints.number_formats import BYTES, NumberFormat
from course_lib.errors import CourseError

Family = Literal["gptneox", "gpt"]  # the section in config.ini
CONFIG, CONVERSION, TOKENIZER = "config.ini", "conversion.json", "tokenizer"
# The biases of row-parallel matrix products, which the engine adds once or on every rank
SUMMED = ("attention.dense.bias", "mlp.dense_4h_to_h.bias")
# Larger values are typing errors. They would also make the file list very long, as each layer has files for every rank
MOST_LAYERS, MOST_RANKS = 1024, 256
FOLDER = re.compile(r"(\d+)-gpu")
RANK = re.compile(r"model\.layers\.0\.attention\.dense\.weight\.(\d+)\.bin")


@dataclass(frozen=True)
class Task:
    """A task's prefix, which requests refer to by its index in the task list."""

    name: str
    length: int  # P [positions]; 0 for a task without a prefix


@dataclass(frozen=True)
class FtConfig:
    """The settings in config.ini, and N, which is part of the folder name."""

    family: Family
    model_name: str
    heads: int
    head_size: int
    inter_size: int
    layers: int
    vocab_size: int
    start_id: int
    end_id: int
    dtype: NumberFormat
    ranks: int  # N
    rotary: int = 0  # GPT-NeoX: rotated dimensions of a head
    parallel_residual: bool = False  # GPT-NeoX
    positions: int = 0  # GPT-2
    layernorm_eps: float | None = None  # GPT-2; None if not set in config.ini
    activation: str | None = None  # GPT-2; None if not set in config.ini
    head: bool = True  # whether the folder has an lm_head
    tasks: tuple[Task, ...] = ()

    @property
    def hidden(self) -> int:
        """H, the hidden size."""
        return self.heads * self.head_size


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and split axis of a tensor, which is stored in a single file or in one file per rank."""

    name: str  # file name without rank and `.bin`
    shape: tuple[int, ...]  # of the whole tensor, as stored
    axis: int | None = None  # the axis split into N parts; None: one file for all ranks

    def files(self, ranks: int) -> list[str]:
        """Return the names of the tensor's files, in rank order."""
        return [f"{self.name}.bin"] if self.axis is None else [f"{self.name}.{rank}.bin" for rank in range(ranks)]

    def part(self, ranks: int) -> tuple[int, ...]:
        """Return the shape of the part of the tensor in one file."""
        if self.axis is None:
            return self.shape
        return tuple(size // ranks if axis == self.axis else size for axis, size in enumerate(self.shape))

    def size(self, config: FtConfig) -> int:
        """Return the size of each of the tensor's files in bytes."""
        return prod(self.part(config.ranks)) * BYTES[config.dtype]


def tensors(config: FtConfig) -> list[TensorSpec]:
    """Return the specifications for all tensors in a folder."""
    hidden = config.hidden
    specs = [TensorSpec("model.wte", (config.vocab_size, hidden))]
    if config.family == "gpt":
        specs.append(TensorSpec("model.wpe", (config.positions, hidden)))
    specs += [TensorSpec(f"model.final_layernorm.{part}", (hidden,)) for part in ("weight", "bias")]
    if config.head:
        specs.append(TensorSpec("model.lm_head.weight", (config.vocab_size, hidden)))
    for layer in range(config.layers):
        specs += _layer(f"model.layers.{layer}", config)
    specs += [prefix(config, task) for task in config.tasks if task.length]
    return specs


def _layer(name: str, config: FtConfig) -> Iterator[TensorSpec]:
    hidden, inner = config.hidden, config.inter_size
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield TensorSpec(f"{name}.{norm}.weight", (hidden,))
        yield TensorSpec(f"{name}.{norm}.bias", (hidden,))
    yield TensorSpec(f"{name}.attention.query_key_value.weight", (hidden, 3, hidden), 2)
    yield TensorSpec(f"{name}.attention.query_key_value.bias", (3, hidden), 1)
    yield TensorSpec(f"{name}.attention.dense.weight", (hidden, hidden), 0)
    yield TensorSpec(f"{name}.attention.dense.bias", (hidden,))
    yield TensorSpec(f"{name}.mlp.dense_h_to_4h.weight", (hidden, inner), 1)
    yield TensorSpec(f"{name}.mlp.dense_h_to_4h.bias", (inner,), 0)
    yield TensorSpec(f"{name}.mlp.dense_4h_to_h.weight", (inner, hidden), 0)
    yield TensorSpec(f"{name}.mlp.dense_4h_to_h.bias", (hidden,))
    if config.parallel_residual:
        yield TensorSpec(f"{name}.mlp.attention.bias.sum", (hidden,))


def prefix(config: FtConfig, task: Task) -> TensorSpec:
    """Return the specification for a task's prefix.

    The axes are layer, key/value, head, position, and dimension within the head.
    """
    shape = (config.layers, 2, config.heads, task.length, config.head_size)
    return TensorSpec(f"model.prefix_prompt.{task.name}.weight", shape, 2)


def uneven(config: FtConfig) -> str | None:
    """Return why the weights cannot be split between N ranks, or None if they can."""
    if config.ranks > MOST_RANKS:
        return f"{config.ranks:,} ranks are not possible; allowed: up to {MOST_RANKS}"
    if config.heads % config.ranks:
        return f"{config.heads} (heads) is not divisible by {config.ranks} ranks"
    if config.inter_size % config.ranks:
        return f"{config.inter_size} (inner width) is not divisible by {config.ranks} ranks"
    return None


def rank_bytes(config: FtConfig) -> tuple[int, int]:
    """Return the bytes that each rank loads: of the tensors that all ranks share, and of its parts of the others."""
    sizes = {True: 0, False: 0}
    for spec in tensors(config):
        sizes[spec.axis is None] += spec.size(config)
    return sizes[True], sizes[False]


def find(path: Path) -> tuple[Path, int]:
    """Return the weights folder DIR/N-gpu and its number of ranks N; `path` is DIR/N-gpu or DIR.

    Raises CourseError if there is no weights folder, or more than one.
    """
    if not path.is_dir():
        raise CourseError(f"{path}: no such folder")
    itself = FOLDER.fullmatch(path.name) or (path / CONFIG).exists()
    inside = (folder for folder in sorted(path.iterdir()) if folder.is_dir() and FOLDER.fullmatch(folder.name))
    folders = [path] if itself else list(inside)
    if not folders:
        raise CourseError(f"{path}: no FasterTransformer folder: neither {CONFIG} nor a folder N-gpu in it")
    if len(folders) > 1:
        raise CourseError(f"{path}: holds {', '.join(folder.name for folder in folders)}; name one of them")
    named = FOLDER.fullmatch(folders[0].resolve().name)
    ranks = int(named[1]) if named else sum(1 for file in folders[0].iterdir() if RANK.fullmatch(file.name))
    return folders[0], max(1, ranks)
