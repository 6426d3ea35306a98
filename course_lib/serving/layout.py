"""What a FasterTransformer folder holds, from its config alone: which files, of which shape, cut where.

Each file is bare numbers: row by row, little-endian, no header. So this list is all that is known of them, and export, inspect and
reader work from it. Symbols: V vocabulary, H hidden, I inner, L layers, n heads, d = H/n, N ranks, P prefix length.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

from course_lib.errors import CourseError

Family = Literal["gptneox", "gpt"]  # the section of config.ini
Dtype = Literal["fp32", "fp16", "bf16"]
BYTES: dict[Dtype, int] = {"fp32": 4, "fp16": 2, "bf16": 2}
CONFIG, CONVERSION, TOKENIZER = "config.ini", "conversion.json", "tokenizer"
SUMMED = ("attention.dense.bias", "mlp.dense_4h_to_h.bias")  # what row-parallel products add, once or on every rank
MOST_LAYERS, MOST_RANKS = 1024, 256  # more is a typing error; each layer has files of its own for every rank
FOLDER = re.compile(r"(\d+)-gpu")
RANK = re.compile(r"model\.layers\.0\.attention\.dense\.weight\.(\d+)\.bin")


@dataclass(frozen=True)
class Task:
    """A prefix: its number in the list of tasks is what a request names."""

    name: str
    length: int  # P [positions]; 0 for rows without a prefix


@dataclass(frozen=True)
class FtConfig:
    """config.ini, and N, which is in the folder's name."""

    family: Family
    model_name: str
    heads: int
    head_size: int
    inter_size: int
    layers: int
    vocab_size: int
    start_id: int
    end_id: int
    dtype: Dtype
    ranks: int  # N
    rotary: int = 0  # turned dimensions of a head; GPT-NeoX
    parallel_residual: bool = False  # GPT-NeoX
    positions: int = 0  # GPT-2
    layernorm_eps: float | None = None  # GPT-2; None if config.ini does not say
    activation: str | None = None  # GPT-2; None if config.ini does not say
    head: bool = True  # has an lm_head of its own
    tasks: tuple[Task, ...] = ()

    @property
    def hidden(self) -> int:
        """H."""
        return self.heads * self.head_size


@dataclass(frozen=True)
class TensorSpec:
    """One tensor: a single file, or one file per rank."""

    name: str  # of its file, without rank and `.bin`
    shape: tuple[int, ...]  # of the whole, as it is written
    axis: int | None = None  # that is cut into N parts

    def files(self, ranks: int) -> list[str]:
        """Its files, in the order of ranks."""
        return [f"{self.name}.bin"] if self.axis is None else [f"{self.name}.{rank}.bin" for rank in range(ranks)]

    def part(self, ranks: int) -> tuple[int, ...]:
        """Shape of what one file holds."""
        if self.axis is None:
            return self.shape
        return tuple(size // ranks if axis == self.axis else size for axis, size in enumerate(self.shape))

    def size(self, config: FtConfig) -> int:
        """Bytes of one file."""
        return prod(self.part(config.ranks)) * BYTES[config.dtype]


def tensors(config: FtConfig) -> list[TensorSpec]:
    """All tensors of a folder."""
    hidden = config.hidden
    found = [TensorSpec("model.wte", (config.vocab_size, hidden))]
    if config.family == "gpt":
        found.append(TensorSpec("model.wpe", (config.positions, hidden)))
    found += [TensorSpec(f"model.final_layernorm.{part}", (hidden,)) for part in ("weight", "bias")]
    if config.head:
        found.append(TensorSpec("model.lm_head.weight", (config.vocab_size, hidden)))
    for layer in range(config.layers):
        found += _layer(f"model.layers.{layer}", config)
    found += [prefix(config, task) for task in config.tasks if task.length]
    return found


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
    """The keys and values of a task: layer, k/v, head, position, number within the head."""
    shape = (config.layers, 2, config.heads, task.length, config.head_size)
    return TensorSpec(f"model.prefix_prompt.{task.name}.weight", shape, 2)


def uneven(config: FtConfig) -> str | None:
    """What N does not divide, or that N is too large; None if N fits."""
    if config.ranks > MOST_RANKS:
        return f"{config.ranks:,} ranks are not possible; allowed: up to {MOST_RANKS}"
    for what, size in (("heads", config.heads), ("inner width", config.inter_size)):
        if size % config.ranks:
            return f"{size} ({what}) is not divisible by {config.ranks} ranks"
    return None


def find(path: Path) -> tuple[Path, int]:
    """The folder of weights and its N, for the folder itself or the one above. Raises CourseError if there is none, or several."""
    if not path.is_dir():
        raise CourseError(f"{path}: no such folder")
    found = [path] if FOLDER.fullmatch(path.name) or (path / CONFIG).exists() else []
    found = found or [place for place in sorted(path.iterdir()) if place.is_dir() and FOLDER.fullmatch(place.name)]
    if not found:
        raise CourseError(f"{path}: no FasterTransformer folder: neither {CONFIG} nor a folder N-gpu in it")
    if len(found) > 1:
        raise CourseError(f"{path}: holds {', '.join(place.name for place in found)}; name one of them")
    named = FOLDER.fullmatch(found[0].resolve().name)
    ranks = int(named[1]) if named else sum(1 for file in found[0].iterdir() if RANK.fullmatch(file.name))
    return found[0], max(1, ranks)
