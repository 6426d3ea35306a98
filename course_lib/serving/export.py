"""Export of a Hugging Face GPT-NeoX or GPT-2 model, with prefixes, to a FasterTransformer folder for N ranks.

    DIR/N-gpu/            the weights, in the format of FasterTransformer's own converters
    DIR/conversion.json   the source, the corrections, and the settings that the format cannot store
    DIR/tokenizer/        the model's tokenizer

The exporter holds only a few tensors in memory, regardless of model size. It never runs the model.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from threading import local
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.tokenizer_files import copy_tokenizer, has_tokenizer
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.checkpoints.weight_files import Weight
from course_lib.errors import CourseError
from course_lib.files import atomic_folder, human_size, require_other, write_json
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress
from course_lib.serving import ini, layout, tasks, weight_map
from course_lib.serving.ft_source import Corrections, Origin, describe
from course_lib.serving.layout import BIAS_SUM, CONFIG, CONVERSION, SUMMED, TOKENIZER, FtConfig, PrefixTask, TensorSpec
from course_lib.serving.tasks import NamedPrefix

CHUNK = 1 << 19  # values per chunk when a weight is copied unchanged
# Bytes per write. For larger writes, Linux searches for large blocks of free memory, which is often far slower
PIECE = 1 << 16
THREADS = 2  # one writes while the other reads and transposes


@dataclass(frozen=True)
class FtExport:
    """An exported folder."""

    folder: Path  # DIR/N-gpu, which the engine reads
    config: FtConfig
    files: int
    size: int  # total size [bytes]
    corrected: list[str]
    notes: list[str]

    def summary(self) -> str:
        """Return a one-line summary, followed by one line for each correction and note."""
        lines = [f"{contents(self.config, self.files, self.size)} → {self.folder}"]
        lines += [tr("corrected: {what}", what=line) for line in self.corrected]
        return "\n".join(lines + [tr("note: {note}", note=line) for line in self.notes])


def contents(config: FtConfig, files: int, size: int) -> str:
    """Return the line on a folder's files, ranks and tasks, for the summaries of export and import."""
    ranks = tr("{number} ranks", number=config.ranks) if config.ranks > 1 else tr("1 rank")
    facts = {"files": files, "size": human_size(size), "dtype": config.dtype, "ranks": ranks}
    line = tr("{files} files, {size} in {dtype} for {ranks}", **facts)
    names = ", ".join(task.name for task in config.tasks)
    return line + tr(", tasks {names}", names=names) if names else line


def export(
    model: Path,
    target: Path,
    tensor_parallel: int = 1,
    dtype: NumberFormat = "fp32",
    prefixes: Sequence[NamedPrefix] = (),
    corrections: Corrections = Corrections(),  # noqa: B008  # frozen
    name: str | None = None,
) -> FtExport:
    """Export the GPT-NeoX or GPT-2 in a Hugging Face folder to the `target` folder, which is written atomically.

    The prefixes are the tasks, numbered from 0; `name` is model_name in config.ini, by default the model folder's name.
    """
    require_other(model, target)
    origin = describe(model, tensor_parallel, dtype, name, corrections)
    values = tasks.fitting(prefixes, origin.config)
    config = replace(origin.config, tasks=tuple(PrefixTask(name, len(rows)) for name, rows in values.items()))
    digest = tasks.same_base(prefixes, model)
    with atomic_folder(target) as folder:
        weights_folder = folder / f"{tensor_parallel}-gpu"
        weights_folder.mkdir()
        _Writer(weights_folder, replace(origin, config=config)).write(model, values)
        written = config if corrections.ini or config.family != "gpt" else replace(config, inter_size=4 * config.hidden)
        (weights_folder / CONFIG).write_text(ini.text(written), encoding="utf8")
        if has_tokenizer(model):
            (folder / TOKENIZER).mkdir()
            copy_tokenizer(model, folder / TOKENIZER, config.positions or origin.lacks["max_position_embeddings"])
        else:
            origin.notes.append(f"{model.resolve().name} has no tokenizer: {TOKENIZER}/ is not written")
        record = {
            # The export may be published, so store only the folder name, not its path on this machine
            "source": model.resolve().name,
            "sha256_of_weights": digest,
            "tensor_parallel": tensor_parallel,
            "dtype": dtype,
            "biases_divided_by": origin.biases_divided_by,
            "not_in_the_format": origin.lacks,
            "corrected": origin.corrected,
            "notes": origin.notes,
        }
        write_json(folder / CONVERSION, record)
        sizes = [file.stat().st_size for file in weights_folder.iterdir()]
    return FtExport(target / weights_folder.name, config, len(sizes), sum(sizes), origin.corrected, origin.notes)


class _Writer:
    """Writer for the tensors of one model."""

    def __init__(self, folder: Path, origin: Origin) -> None:
        self.folder, self.origin, self.config = folder, origin, origin.config
        self.dtype = TORCH[self.config.dtype]
        self.specs = weight_map.specs_by_weight(self.config)
        # Name of the output layer if it is not read from the model's files. If the embedding serves as the output
        # layer, a stored lm_head is ignored, as in transformers
        self.tied = "lm_head.weight" if origin.tied or not self.config.head else None
        self.memory = _Memory()
        # The biases to sum if the model uses parallel residual
        self.biases: dict[str, Tensor] = {}

    def write(self, model: Path, prefixes: dict[str, Tensor]) -> None:
        """Write all files. Raises CourseError if the weights do not match the model's configuration."""
        names: set[str] = set()
        total = sum(len(spec.files(self.config.ranks)) * spec.size(self.config) for spec in layout.tensors(self.config))
        with progress(total, "B", "export") as bar, ThreadPoolExecutor(THREADS) as pool:
            for path in weight_files.files(model):
                weights = self._wanted(path, names)
                for size in pool.map(self._weight, weights):
                    bar.update(size)
        for name in self.specs.keys() - names - {self.tied}:
            if not (self.origin.zero_biases and name.endswith(("query_key_value.bias", "attention.dense.bias"))):
                raise CourseError(f"{model}: lacks {name}, which its configuration requires")
            self._weight(_zeros(name, self.specs[name], self.config))
        self._sums()
        for task, values in prefixes.items():
            if len(values):
                spec = layout.prefix(self.config, PrefixTask(task, len(values)))
                self._files(spec, self._cast(weight_map.prefix_stored(values, self.config), spec.name))

    def _wanted(self, path: Path, names: set[str]) -> list[Weight]:
        """Return the model weights in a file, identified by their short names, and add these names to `names`."""
        wanted = []
        for weight in weight_files.weights(path):
            name = weight_map.short(weight.name)
            if name is None or name == self.tied:
                continue
            weight_files.require_float(path, weight)
            if name not in self.specs:
                raise CourseError(f"{path}: {weight.name} is no weight that the format can store")
            if weight.shape != (shape := weight_map.shape(self.specs[name], self.config)):
                raise CourseError(f"{path}: {weight.name} has shape {weight.shape}, the configuration requires {shape}")
            if name in names:
                raise CourseError(f"{path}: {weight.name} occurs twice")
            names.add(name)
            wanted.append(replace(weight, name=name))
        return wanted

    def _weight(self, weight: Weight) -> int:
        """Write one weight and return its size in bytes."""
        specs = [self.specs[weight.name]]
        if weight.name == "embed_in.weight" and self.tied:
            specs.append(self.specs[self.tied])
        if weight_map.as_is(self.specs[weight.name], self.config) and not weight.name.endswith(SUMMED):
            return sum(self._through(weight, self.folder / f"{spec.files(1)[0]}") for spec in specs)
        return self._rearranged(weight, self.specs[weight.name])

    def _through(self, weight: Weight, path: Path) -> int:
        """Write a weight that needs no rearrangement, one chunk at a time, and return its size in bytes."""
        with open(path, "wb") as file:
            for chunk in weight.in_turn(CHUNK):
                _write(file, self._cast(chunk, weight.name))
            _to_disk(file)
        return prod(weight.shape) * self.dtype.itemsize

    def _rearranged(self, weight: Weight, spec: TensorSpec) -> int:
        size = prod(weight.shape) * self.dtype.itemsize
        whole = self.memory.room(size).view(self.dtype).view(spec.shape)
        slots = weight_map.slots(whole, spec, self.config)
        for slot, chunk in zip(slots, weight.chunks([slot.numel() for slot in slots]), strict=True):
            rows = self._cast(chunk, weight.name).view(slot.shape)
            # For transposed weights, it is up to twice as fast to transpose the rows in the CPU cache first
            if slot.dim() == 2 and slot.stride(0) == 1:
                slot.t().copy_(rows.t().contiguous())
            else:
                slot.copy_(rows)
        if weight.name.endswith(SUMMED):
            whole /= self.origin.biases_divided_by
            self.biases[weight.name] = whole.clone()
        self._files(spec, whole)
        return size

    def _cast(self, tensor: Tensor, name: str) -> Tensor:
        """Convert a tensor to the folder's dtype. Raises CourseError if a value is too large for fp16."""
        if tensor.dtype == self.dtype:
            return tensor
        tensor = tensor.to(self.dtype)
        if self.dtype == torch.float16 and any(torch.isinf(end) for end in torch.aminmax(tensor)):
            raise CourseError(f"{name}: has numbers above 65504, too large for fp16; allowed: bf16, fp32")
        return tensor

    def _files(self, spec: TensorSpec, whole: Tensor) -> None:
        parts = weight_map.cut(whole, spec, self.config.ranks)
        for name, part in zip(spec.files(self.config.ranks), parts, strict=True):
            with open(self.folder / name, "wb") as file:
                _write(file, part.contiguous())
                _to_disk(file)

    def _sums(self) -> None:
        """Write the sum of each layer's two biases, which the engine reads if the model uses parallel residual."""
        for layer in range(self.config.layers if self.config.parallel_residual else 0):
            attention, mlp = (self.biases[f"layers.{layer}.{name}"] for name in SUMMED)
            self._files(TensorSpec(f"model.layers.{layer}.{BIAS_SUM}", attention.shape), attention + mlp)


def _write(file: BinaryIO, tensor: Tensor) -> None:
    data = tensor.flatten().view(torch.uint8).numpy().data
    for start in range(0, len(data), PIECE):
        file.write(data[start : start + PIECE])


def _to_disk(file: BinaryIO) -> None:
    """Make the kernel start writing to disk now, while the export continues; only Linux can."""
    file.flush()
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class _Memory(local):
    """A per-thread buffer for every tensor: the page faults of new memory take as long as the copying itself."""

    def __init__(self) -> None:
        self.bytes = torch.empty(0, dtype=torch.uint8)

    def room(self, size: int) -> Tensor:
        """Return `size` bytes from the buffer, with undefined content."""
        if len(self.bytes) < size:
            # NumPy requests huge pages, while torch does not
            self.bytes = torch.from_numpy(np.empty(size, np.uint8))
        return self.bytes[:size]


def _zeros(name: str, spec: TensorSpec, config: FtConfig) -> Weight:
    return Weight(name, weight_map.shape(spec, config), torch.float32, partial(map, torch.zeros))
