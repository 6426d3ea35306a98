"""The files in a FasterTransformer folder: names, shapes, axes split between ranks, and the weights that they hold.

Each file contains only row-major, little-endian values, without a header. The exporter, checker, reader and import
therefore all rely on this table. Symbols: V vocabulary size, P positions, H hidden size, I inner size, N ranks.
"""

import os
import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

from course_lib.checkpoints.number_formats import BYTES, NumberFormat
from course_lib.errors import CourseError
from course_lib.language.words import tr

Family = Literal["gptneox", "gpt"]  # the section in config.ini
CONFIG, CONVERSION, TOKENIZER = "config.ini", "conversion.json", "tokenizer"
N_GPU = re.compile(r"([1-9]\d*)-gpu")
LAYERS = "model.layers."
# The biases of row-parallel matrix products, which the engine adds once or on every rank, and the file with their sum
SUMMED = ("attention.dense.bias", "mlp.dense_4h_to_h.bias")
BIAS_SUM = "mlp.attention.bias.sum"

# Stored name: dimensions, and the weight's name in GPT-NeoX and in GPT-2
GLOBAL = {
    "wte": ("VH", "embed_in.weight", "wte.weight"),
    "wpe": ("PH", None, "wpe.weight"),
    "final_layernorm.weight": ("H", "final_layer_norm.weight", "ln_f.weight"),
    "final_layernorm.bias": ("H", "final_layer_norm.bias", "ln_f.bias"),
    "lm_head.weight": ("VH", "lm_head.weight", "lm_head.weight"),
}
# The same for the tensors of a layer: stored name, as in GPT-NeoX: dimensions, split axis, name in GPT-2
LAYER = {
    "input_layernorm.weight": ("H", None, "ln_1.weight"),
    "input_layernorm.bias": ("H", None, "ln_1.bias"),
    "post_attention_layernorm.weight": ("H", None, "ln_2.weight"),
    "post_attention_layernorm.bias": ("H", None, "ln_2.bias"),
    "attention.query_key_value.weight": ("H3H", 2, "attn.c_attn.weight"),
    "attention.query_key_value.bias": ("3H", 1, "attn.c_attn.bias"),
    "attention.dense.weight": ("HH", 0, "attn.c_proj.weight"),
    "attention.dense.bias": ("H", None, "attn.c_proj.bias"),
    "mlp.dense_h_to_4h.weight": ("HI", 1, "mlp.c_fc.weight"),
    "mlp.dense_h_to_4h.bias": ("I", 0, "mlp.c_fc.bias"),
    "mlp.dense_4h_to_h.weight": ("IH", 0, "mlp.c_proj.weight"),
    "mlp.dense_4h_to_h.bias": ("H", None, "mlp.c_proj.bias"),
}
# Settings that the format cannot store: key in config.json → field of Given, and the default of the model family
LACKS: dict[Family, dict[str, tuple[str, Any]]] = {
    "gptneox": {
        "hidden_act": ("activation", "gelu"),
        "layer_norm_eps": ("layer_norm_eps", 1e-5),
        "rope_theta": ("rope_theta", 10000.0),
        "max_position_embeddings": ("max_positions", 2048),
    },
    "gpt": {"activation_function": ("activation", "gelu_new"), "layer_norm_epsilon": ("layer_norm_eps", 1e-5)},
}


@dataclass(frozen=True)
class PrefixTask:
    """A task's prefix, which requests refer to by its index in the task list."""

    name: str
    length: int  # [positions]; 0 for a task without a prefix


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
    tasks: tuple[PrefixTask, ...] = ()

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
    weight: str | None = None  # name of the weight in the Hugging Face model, without the model's prefix

    @property
    def in_layer(self) -> bool:
        """Whether the tensor belongs to a layer."""
        return self.name.startswith(LAYERS)

    @property
    def qkv(self) -> bool:
        """Whether the tensor is a fused query/key/value weight or bias."""
        return "query_key_value" in self.name

    def files(self, ranks: int) -> list[str]:
        """Return the names of the tensor's files, in rank order."""
        return [f"{self.name}.bin"] if self.axis is None else [f"{self.name}.{rank}.bin" for rank in range(ranks)]

    def part(self, ranks: int) -> tuple[int, ...]:
        """Return the shape of the part of the tensor in one file."""
        return tuple(size // ranks if axis == self.axis else size for axis, size in enumerate(self.shape))

    def size(self, config: FtConfig) -> int:
        """Return the size of each of the tensor's files in bytes."""
        return prod(self.part(config.ranks)) * BYTES[config.dtype]


def tensors(config: FtConfig) -> list[TensorSpec]:
    """Return the specifications for all tensors in a folder."""
    sizes = {"V": config.vocab_size, "P": config.positions, "H": config.hidden, "I": config.inter_size, "3": 3}
    gpt = config.family == "gpt"
    specs = []
    for name, (dimensions, neox_name, gpt_name) in GLOBAL.items():
        weight = gpt_name if gpt else neox_name
        if weight and (config.head or name != "lm_head.weight"):
            specs.append(TensorSpec(f"model.{name}", tuple(sizes[letter] for letter in dimensions), None, weight))
    for layer in range(config.layers):
        for name, (dimensions, axis, gpt_name) in LAYER.items():
            weight = f"h.{layer}.{gpt_name}" if gpt else f"layers.{layer}.{name}"
            shape = tuple(sizes[letter] for letter in dimensions)
            specs.append(TensorSpec(f"{LAYERS}{layer}.{name}", shape, axis, weight))
        if config.parallel_residual:
            specs.append(TensorSpec(f"{LAYERS}{layer}.{BIAS_SUM}", (config.hidden,)))
    return specs + [prefix(config, task) for task in config.tasks if task.length]


def prefix(config: FtConfig, task: PrefixTask) -> TensorSpec:
    """Return the specification for a task's prefix: layer, key/value, head, position, dimension within the head."""
    shape = (config.layers, 2, config.heads, task.length, config.head_size)
    return TensorSpec(f"model.prefix_prompt.{task.name}.weight", shape, 2)


def weights(config: FtConfig) -> dict[str, TensorSpec]:
    """Return how each weight is stored, by the weights' names in the model."""
    return {spec.weight: spec for spec in tensors(config) if spec.weight}


def uneven(config: FtConfig) -> str | None:
    """Return why the weights cannot be split between N ranks, or None if they can."""
    for size, what in ((config.heads, "heads"), (config.inter_size, "inner width")):
        if size % config.ranks:
            return f"{size} ({what}) is not divisible by {config.ranks} ranks"
    return None


def rank_bytes(config: FtConfig) -> tuple[int, int]:
    """Return the bytes that each rank loads: of the tensors that all ranks share, and of its parts of the others."""
    sizes = {True: 0, False: 0}
    for spec in tensors(config):
        sizes[spec.axis is None] += spec.size(config)
    return sizes[True], sizes[False]


def total_bytes(config: FtConfig) -> int:
    """Return the bytes of all tensors' files."""
    shared, split = rank_bytes(config)
    return shared + split * config.ranks


def native(path: str) -> str:
    """Return a path with the characters by which this process names its bytes, which are UTF-8.

    Triton's Python stub configures no locale, so that Python names other bytes than ASCII by surrogates (PEP 383): for
    it, a folder of a Japanese name is not there. In any other process, this function changes nothing.
    """
    return os.fsdecode(path.encode("utf8", "surrogateescape"))


def shown(text: str) -> str:
    """Return a text in which paths may stand, with their characters instead of the surrogates of `native`."""
    return text.encode("utf8", "surrogateescape").decode("utf8", "replace")


def require_whole(folder: Path, config: FtConfig) -> None:
    """Raise CourseError if a file that config.ini requires is missing or has the wrong size."""
    for spec in tensors(config):
        checked_files(folder, spec, config)


def checked_files(folder: Path, spec: TensorSpec, config: FtConfig) -> list[Path]:
    """Return the files of a tensor. Raises CourseError if one is missing or has the wrong size."""
    paths = [folder / native(name) for name in spec.files(config.ranks)]
    for path in paths:
        if not path.is_file():
            raise CourseError(f"{path}: no such file")
        if (size := path.stat().st_size) != spec.size(config):
            raise CourseError(
                f"{path}: {size:,} bytes, expected {spec.size(config):,} "
                f"({list(spec.part(config.ranks))} of {config.dtype})"
            )
    return paths


def find(path: Path) -> tuple[Path, int]:
    """Return the weights folder DIR/N-gpu and its number of ranks N; `path` is DIR/N-gpu or DIR."""
    if not path.is_dir():
        raise CourseError(tr("{path}: no such folder", path=path))
    inside = (folder for folder in sorted(path.iterdir()) if folder.is_dir() and N_GPU.fullmatch(folder.name))
    folders = [path] if N_GPU.fullmatch(path.resolve().name) else list(inside)
    if len(folders) != 1:
        names = ", ".join(folder.name for folder in folders) or tr("none")
        raise CourseError(
            tr("{path}: expected one FasterTransformer folder N-gpu, found: {names}", path=path, names=names)
        )
    return folders[0], int(folders[0].resolve().name.removesuffix("-gpu"))
