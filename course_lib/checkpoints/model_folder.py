"""Loads the configuration, model and tokenizer of a Hugging Face folder with transformers.

transformers can raise almost any exception for a damaged folder. This module checks the files first and turns every
failure into one CourseError that names the file.
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
from course_lib.errors import CourseError, one_line
from course_lib.files import read_json

CONFIG = "config.json"
SETTINGS = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
LAYERS = ("num_hidden_layers", "n_layer")
SIZES = (
    "vocab_size", "hidden_size", "n_embd", *LAYERS, "num_attention_heads", "n_head", "max_position_embeddings",
    "n_positions", "intermediate_size", "n_inner",
)  # fmt: skip
# The limit of model.num_layers, too. A larger number is a typing error, and building the layers would take too long.
MOST_LAYERS = 1024


def check_settings(folder: Path) -> None:
    """Checks the JSON files of a model or tokenizer folder, and the model sizes in config.json.

    Raises CourseError for a file that is not a JSON object, and for an impossible size (see check_sizes).
    """
    if (folder / CONFIG).is_file():
        check_sizes(folder / CONFIG, read_json(folder / CONFIG))
    for name in SETTINGS:
        if (folder / name).is_file():
            read_json(folder / name)


def check_sizes(path: Path, content: dict[str, Any]) -> None:
    """Checks the model sizes in `content`, the parsed config.json at `path`.

    Raises CourseError for a size that is not a whole number from 1 on, and for more layers than MOST_LAYERS.
    """
    for key in SIZES:
        size = content.get(key)
        # GPT-2 allows n_inner = null. A few model families give a list with one size per layer.
        if size is None or isinstance(size, list):
            continue
        if not isinstance(size, int) or size < 1 or (key in LAYERS and size > MOST_LAYERS):
            most = f"to {MOST_LAYERS:,}" if key in LAYERS else "on"
            raise CourseError(f"{path}: {key} = {size!r}; allowed: a whole number from 1 {most}")


def read_config(folder: Path) -> Any:
    """The transformers configuration of a model folder.

    Raises CourseError if the folder has no config.json, or none that transformers can read.
    """
    path = folder / CONFIG
    if not folder.is_dir():
        raise CourseError(f"{folder}: {'a file' if folder.exists() else 'no such folder'}; expected a model folder")
    if not path.is_file():
        raise CourseError(f"{folder}: not a model folder, it has no {CONFIG} (`course export` writes one)")
    check_settings(folder)
    family = read_json(path).get("model_type")
    if not isinstance(family, str) or family not in CONFIG_MAPPING:
        raise CourseError(f"{path}: model_type {family!r}: not a model family that transformers knows")
    try:
        with quiet():
            return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # A damaged file can raise any exception.
    except Exception as error:
        raise CourseError(f"{path}: not readable as a model: {one_line(error)}") from error


def load_model(folder: Path, dtype: torch.dtype | str = "auto", attention: str | None = None) -> Any:
    """Loads the causal language model of a folder, in eval mode.

    Args:
        folder: a Hugging Face model folder.
        dtype: number format of the weights; "auto" keeps the stored one.
        attention: attention kernel of transformers; None takes its default.

    Raises CourseError for an unreadable folder, and for weights that are missing or have the wrong shape.
    """
    options = {"dtype": dtype, "attn_implementation": attention, "trust_remote_code": False}
    return load_weights(AutoModelForCausalLM, folder, read_config(folder), **options)


def load_weights(model_class: Any, folder: Path, config: Any, **options: Any) -> Any:
    """Loads a model of `model_class` in eval mode; `options` go to its `from_pretrained`. Raises as load_model."""
    with reading_weights(folder):
        model, loading_info = model_class.from_pretrained(
            folder,
            config=config,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
    require_whole(folder, loading_info)
    return model.eval()


@contextmanager
def reading_weights(folder: Path) -> Iterator[None]:
    """A context in which transformers loads a folder's weights without printing.

    Any exception becomes one CourseError that names the file and says what to do.
    """
    files = weight_files.files(folder)
    # transformers silently ignores a damaged generation_config.json, and with it the end-of-text token.
    if (folder / SETTINGS[0]).is_file():
        read_json(folder / SETTINGS[0])
    try:
        with quiet():
            yield
    # A damaged folder can raise any exception.
    except Exception as error:
        # Reading the files again one by one raises an error that names the damaged file.
        for path in files:
            weight_files.weights(path)
        if files[0].suffix != ".safetensors":
            raise CourseError(
                f"{files[0]}: a pickle that transformers does not load; {weight_files.INSTEAD}"
            ) from error
        raise CourseError(f"{folder}: not readable as a model: {one_line(error)}") from error


def require_whole(folder: Path, found: dict[str, Any]) -> None:
    """Raises CourseError if weights were missing or had the wrong shape when transformers loaded them.

    `found` is the loading info that `from_pretrained(output_loading_info=True)` returns.
    """
    if missing := sorted(found["missing_keys"]):
        raise CourseError(f"{folder}: the weights lack {missing[0]} and {len(missing) - 1} more that the model needs")
    for name, stored, wanted in found["mismatched_keys"]:
        raise CourseError(f"{folder}: {name} has shape {tuple(stored)}, {CONFIG} says {tuple(wanted)}")


def load_tokenizer(folder: Path, tokenizer_class: Any = AutoTokenizer) -> Any:
    """The transformers tokenizer of a model or tokenizer folder.

    Raises CourseError if the folder holds no tokenizer; transformers would silently create an empty one.
    """
    require_tokenizer(folder)
    check_settings(folder)
    try:
        with quiet():
            return tokenizer_class.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except CourseError:
        raise
    # A damaged file can raise any exception.
    except Exception as error:
        raise CourseError(f"{folder}: not readable as a tokenizer: {one_line(error)}") from error


def end_id(folder: Path, *candidates: Any) -> int | None:
    """The id of the end-of-text token: the first candidate that is set, or None.

    Args:
        folder: named in the error message.
        candidates: values of eos_token_id in order of preference: an id, a list of ids (the first counts), or None.

    Raises CourseError for an empty list.
    """
    for ids in candidates:
        if isinstance(ids, list) and not ids:
            raise CourseError(f"{folder}: eos_token_id is an empty list; allowed: a number, or several")
        if ids is not None:
            return int(ids[0] if isinstance(ids, list) else ids)
    return None
