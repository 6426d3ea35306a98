"""A Hugging Face folder, read by transformers: its configuration, its model, its tokenizer.

transformers raises whatever its many readers raise. Here the files are checked first, and a failure is one CourseError that names the file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.quiet import quiet
from course_lib.checkpoints.tokenizer_files import require_tokenizer
from course_lib.errors import CourseError
from course_lib.files import read_json

CONFIG = "config.json"
SETTINGS = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
LAYERS = ("num_hidden_layers", "n_layer")
SIZES = (
    "vocab_size", "hidden_size", "n_embd", *LAYERS, "num_attention_heads", "n_head", "max_position_embeddings", "n_positions",
    "intermediate_size", "n_inner",
)  # fmt: skip
MOST_LAYERS = (
    1024  # as our own settings allow; more is a typing error, and transformers would build the layers one by one
)


def check_settings(folder: Path) -> None:
    """Raises CourseError for a settings file of transformers that is no JSON object, and for sizes that cannot be."""
    if (folder / CONFIG).is_file():
        check_sizes(folder / CONFIG, read_json(folder / CONFIG))
    for name in SETTINGS:
        if (folder / name).is_file():
            read_json(folder / name)


def check_sizes(path: Path, content: dict[str, Any]) -> None:
    """Raises CourseError for a size in the config.json `path` that is no whole number, below 1, or a number of layers above MOST_LAYERS."""
    for key in SIZES:
        size = content.get(key)
        # n_inner of a GPT-2 is null, and a few families have a list, one size per layer.
        if size is None or isinstance(size, list):
            continue
        if not isinstance(size, int) or size < 1 or (key in LAYERS and size > MOST_LAYERS):
            most = f"to {MOST_LAYERS:,}" if key in LAYERS else "on"
            raise CourseError(f"{path}: {key} = {size!r}; allowed: a whole number from 1 {most}")


def read_config(folder: Path) -> Any:
    """The configuration of a model folder. Raises CourseError for anything else."""
    path = folder / CONFIG
    if not folder.is_dir():
        raise CourseError(f"{folder}: {'a file' if folder.exists() else 'no such folder'}; expected a model folder")
    if not path.is_file():
        raise CourseError(f"{folder}: not a model folder, it has no {CONFIG} (`course export` writes one)")
    check_settings(folder)
    family = read_json(path).get("model_type")
    if not isinstance(family, str) or family not in CONFIG_MAPPING:
        raise CourseError(f"{path}: model_type {family!r}: no family of models that transformers knows")
    try:
        with quiet():
            return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the reader of a damaged file can end in any error
        raise CourseError(f"{path}: not readable as a model: {one_line(error)}") from error


def load_model(folder: Path, dtype: torch.dtype | str = "auto", attention: str | None = None) -> Any:
    """The causal language model of a folder in eval mode, its weights in `dtype` ("auto": as stored).

    Raises CourseError for an unreadable folder, and for weights that are missing or of another shape.
    """
    config = read_config(folder)
    with reading_weights(folder):
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=attention,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    require_whole(folder, found)
    return model.eval()


@contextmanager
def reading_weights(folder: Path) -> Iterator[None]:
    """While open, transformers reads a folder's weights in silence. What it raises becomes one CourseError, which says what to do."""
    files = weight_files.files(folder)
    # transformers passes over one that is no JSON, and so over the token that ends a text.
    if (folder / SETTINGS[0]).is_file():
        read_json(folder / SETTINGS[0])
    try:
        with quiet():
            yield
    except Exception as error:  # a damaged folder can end in any error of the readers of its files
        for path in files:
            weight_files.weights(path)  # names a damaged file and what is wrong with it
        if files[0].suffix != ".safetensors":
            raise CourseError(
                f"{files[0]}: a pickle that transformers does not load; {weight_files.INSTEAD}"
            ) from error
        raise CourseError(f"{folder}: not readable as a model: {one_line(error)}") from error


def require_whole(folder: Path, found: dict[str, Any]) -> None:
    """Raises CourseError if `found`, what transformers says of loading, names weights that are missing or of another shape."""
    if missing := sorted(found["missing_keys"]):
        raise CourseError(f"{folder}: the weights lack {missing[0]} and {len(missing) - 1} more that the model needs")
    for name, stored, wanted in found["mismatched_keys"]:
        raise CourseError(f"{folder}: {name} has shape {tuple(stored)}, {CONFIG} says {tuple(wanted)}")


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model or tokenizer folder. Raises CourseError if it holds none: transformers would make an empty one."""
    require_tokenizer(folder)
    check_settings(folder)
    try:
        with quiet():
            return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # as above
        raise CourseError(f"{folder}: not readable as a tokenizer: {one_line(error)}") from error


def end_id(folder: Path, *said: Any) -> int | None:
    """The first id in what `said`, in this order, of the token that ends a text: a number, a list, or None. Raises CourseError for an empty list."""
    for ids in said:
        if isinstance(ids, list) and not ids:
            raise CourseError(f"{folder}: eos_token_id is an empty list; allowed: a number, or several")
        if ids is not None:
            return int(ids[0] if isinstance(ids, list) else ids)
    return None


def one_line(error: Exception) -> str:
    """The message of a library as one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]
