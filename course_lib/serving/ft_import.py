"""Import of a FasterTransformer folder: the way back to a Hugging Face folder, bit for bit.

    MODEL/                  config.json, weights, tokenizer
    MODEL/prefixes/         one prefix file for each task that has a prefix
    MODEL/conversion.json   where every setting came from, and the tasks in order

Writing holds at most one file of weight_files.SHARD bytes in memory. Three things do not return as they were: settings
that the format does not store, biases that were divided by a number of ranks that is no power of two (one rounding),
and a start id that the source did not have (the exporter writes the end id).
"""

import filecmp
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor
from transformers import GenerationConfig

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.model_folder import GENERATION, generation_defaults
from course_lib.checkpoints.tokenizer_files import copy_tokenizer
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import UsageError
from course_lib.files import atomic_folder, require_other, write_json
from course_lib.generation.config import CHOOSING
from course_lib.generation.prefix_cache import Shape
from course_lib.language.words import tr
from course_lib.models import frozen_base
from course_lib.notebooks.progress import progress
from course_lib.prefix import files as prefix_files
from course_lib.prefix.files import Prefix
from course_lib.serving import layout, reader, weight_map
from course_lib.serving.export import contents
from course_lib.serving.ft_settings import FtFolder, Given, Setting, opened
from course_lib.serving.layout import CONVERSION, SUMMED, TOKENIZER, FtConfig


@dataclass(frozen=True)
class FtImport:
    """An imported model."""

    folder: Path
    config: FtConfig
    files: int  # files read
    settings: dict[str, Setting]
    notes: list[str]

    def summary(self) -> str:
        """Return a one-line summary, followed by one line for the assumed settings and one for each note."""
        lines = [f"{contents(self.config, self.files)} → {self.folder}"]
        assumed = [f"{key} = {found.value}" for key, found in self.settings.items() if found.source == "default"]
        if assumed:
            lines.append(tr("assumed, as the folder does not say: {settings}", settings=", ".join(assumed)))
        return "\n".join(lines + [tr("note: {note}", note=note) for note in self.notes])


def import_folder(source: Path, target: Path, tokenizer: Path | None = None, given: Given | None = None) -> FtImport:
    """Write the model in DIR or DIR/N-gpu as a Hugging Face folder; tokenizer and `given` override the folder's own."""
    found = opened(source, given)
    config, notes, divisor, parent = found.config, found.notes, found.divisor, found.path.resolve().parent
    if divisor is None:
        raise UsageError(
            f"--biases-divided-by: not given, and {found.path.parent} has no {CONVERSION} that records it; "
            f"allowed: {config.ranks} (huggingface_gptneox_convert.py divides {' and '.join(SUMMED)} by it), "
            "1 (undivided)"
        )
    if not tokenizer and (parent / TOKENIZER).is_dir():
        tokenizer = parent / TOKENIZER
    for read_only in filter(None, (found.path, tokenizer)):
        require_other(read_only, target)
    if not tokenizer:
        notes.append(f"no {TOKENIZER}/ and no --tokenizer: the model cannot encode text")
    if divisor & (divisor - 1):
        notes.append(f"biases are multiplied by {divisor}, no power of two: up to one rounding from the source's")
    shape = reader.hf_config(found)
    shape.dtype = TORCH[config.dtype]
    if config.family == "gptneox":
        # A GPT-NeoX folder always has an lm_head; it is the embedding if the files are equal
        first, last = (found.path / f"model.{name}.bin" for name in ("wte", "lm_head.weight"))
        exist = first.is_file() and last.is_file()
        shape.tie_word_embeddings = exist and filecmp.cmp(first, last, shallow=False)
        # For transformers 4, which otherwise assumes 0.25
        shape.rotary_pct = shape.rope_parameters["partial_rotary_factor"]
        shape.rotary_emb_base = shape.rope_parameters["rope_theta"]
    with atomic_folder(target) as folder:
        weight_files.write(_weights(found, shape.tie_word_embeddings), folder, weight_files.SHARD)
        shape.save_pretrained(folder)
        GenerationConfig.from_model_config(shape).save_pretrained(folder)
        # Of an export by this course: all ends of a text, what precedes it, and how the next token is chosen.
        own = generation_defaults(tokenizer) if tokenizer else {}
        keys = ("bos_token_id", "eos_token_id", *CHOOSING)
        settings = {key: own[key] for key in keys if own.get(key) is not None}
        write_json(folder / GENERATION, generation_defaults(folder) | settings)
        if tokenizer:
            copy_tokenizer(tokenizer, folder, shape.max_position_embeddings)
        digest = frozen_base.digest(folder)
        if digest == found.conversion.get("sha256_of_weights"):
            notes.append(f"the same weights, bit for bit, as {found.conversion.get('source')} before its export")
        record = {
            "source": f"{parent.name}/{found.path.resolve().name}",
            "format": f"FasterTransformer [{config.family}]",
            "model_name": config.model_name,
            "tensor_parallel": config.ranks,
            "dtype": config.dtype,
            "settings": {key: {"value": known.value, "from": known.source} for key, known in found.settings.items()},
            "biases_multiplied_by": divisor,
            "tasks": [asdict(task) for task in config.tasks],
            "sha256_of_weights": digest,
            "notes": notes,
        }
        write_json(folder / CONVERSION, record)
        sizes = Shape(config.layers, config.heads, config.head_size)
        for task in config.tasks:
            if task.length:
                # fp32 represents every fp16 and bf16 value, so the prefix file loses nothing
                prefix = Prefix(reader.prefix(found, task).float(), task.name, digest, sizes)
                prefix_files.write(prefix, folder / "prefixes" / f"{task.name}.safetensors")
    files = sum(len(spec.files(config.ranks)) for spec in layout.tensors(config)) + 1
    return FtImport(target, config, files, found.settings, notes)


def _weights(found: FtFolder, tied: bool) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights under their Hugging Face names, one at a time."""
    with progress(layout.total_bytes(found.config), "B", "import") as bar:
        for name, tensor in reader.weights(found):
            bar.update(tensor.nbytes)
            weight_files.require_finite(found.path, name, tensor)
            if not (tied and name == "lm_head.weight"):
                yield weight_map.full(name, found.config.family), tensor
