"""Loaders for the configuration, model and tokenizer in a Hugging Face folder, based on transformers."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from course_lib.checkpoints import tokenizer_settings, weight_files
from course_lib.checkpoints.quiet import quiet
from course_lib.checkpoints.sentencepiece_tokenizer import SentencePieceTokenizer, reader_of
from course_lib.checkpoints.tokenizer_files import JSON, require_tokenizer, sentencepiece_model
from course_lib.errors import CourseError, one_line
from course_lib.files import read_json
from course_lib.language.words import tr

CONFIG = "config.json"
SETTINGS = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def check_settings(folder: Path) -> None:
    """Raise CourseError if one of the JSON files in a model or tokenizer folder is not a JSON object."""
    for name in (CONFIG, *SETTINGS):
        if (folder / name).is_file():
            read_json(folder / name)


def read_config(folder: Path) -> Any:
    """Return the transformers configuration of a model folder."""
    path = folder / CONFIG
    if not path.is_file():
        # A product of a chapter has its model beside its run.
        inner = folder / "model"
        if (inner / CONFIG).is_file():
            raise CourseError(tr("{folder}: not a model folder; {inner} is one", folder=folder, inner=inner))
        hint = tr("it has no {file} (`course export` writes one)", file=CONFIG)
        raise CourseError(tr("{folder}: not a model folder; {hint}", folder=folder, hint=hint))
    check_settings(folder)
    try:
        with quiet():
            return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # A damaged file can raise any exception.
    except Exception as error:
        raise CourseError(f"{path}: not readable as a model: {one_line(error)}") from error


def load_model(folder: Path, dtype: torch.dtype | str = "auto", attention: str | None = None) -> Any:
    """Load the causal language model in a folder, in eval mode; dtype "auto" keeps the stored dtype."""
    options = {"dtype": dtype, "attn_implementation": attention, "trust_remote_code": False}
    return load_weights(AutoModelForCausalLM, folder, read_config(folder), **options)


def load_weights(model_class: Any, folder: Path, config: Any, **options: Any) -> Any:
    """Load a model in eval mode with `model_class.from_pretrained`; no weight may be missing, unknown or not finite."""
    files = weight_files.files(folder)
    # transformers silently ignores a damaged generation_config.json and so loses the end-of-text token.
    check_settings(folder)
    options |= {"config": config, "local_files_only": True, "ignore_mismatched_sizes": True}
    try:
        with quiet():
            model, found = model_class.from_pretrained(folder, output_loading_info=True, **options)
    # A damaged folder can raise any exception.
    except Exception as error:
        # Read the files again one by one, so that the error names the damaged file.
        for path in files:
            weight_files.weights(path)
        if files[0].suffix != ".safetensors":
            problem = f"{files[0]}: a pickle that transformers does not load"
            raise CourseError(weight_files.unread(problem)) from error
        raise CourseError(f"{folder}: not readable as a model: {one_line(error)}") from error
    if missing := sorted(found["missing_keys"]):
        raise CourseError(f"{folder}: the weights lack {missing[0]} and {len(missing) - 1} more that the model needs")
    if unknown := sorted(name for name in found["unexpected_keys"] if not weight_files.is_leftover(name)):
        raise CourseError(
            f"{folder}: {unknown[0]} and {len(unknown) - 1} more weights have no place in the model of {CONFIG}"
        )
    for name, stored, wanted in found["mismatched_keys"]:
        raise CourseError(f"{folder}: {name} has shape {tuple(stored)}, {CONFIG} says {tuple(wanted)}")
    for name, parameter in model.named_parameters():
        weight_files.require_finite(folder, name, parameter)
    return model.eval()


def load_tokenizer(folder: Path, tokenizer_class: Any = None) -> Any:
    """Load the tokenizer in a model or tokenizer folder; transformers would silently create an empty one.

    A tokenizer.json or a sentencepiece model is read as it is, whatever class the folder names: the classes of
    transformers 5 rebuild the tokenizer. The ids of texts are those of text_tokenizer.py.
    """
    require_tokenizer(folder)
    check_settings(folder)
    try:
        with quiet():
            chosen = tokenizer_class or _tokenizer_class(folder)
            loaded = chosen.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            _complete(folder, loaded)
    except CourseError:
        raise
    # A damaged file can raise any exception.
    except Exception as error:
        raise CourseError(f"{folder}: not readable as a tokenizer: {one_line(error)}") from error
    if not set(loaded.get_vocab()) - set(loaded.all_special_tokens):
        name = type(loaded).__name__
        raise CourseError(
            f"{folder}: {name} finds no vocabulary in it; give tokenizer.json, a sentencepiece model, or the "
            f"tokenizer_class of its files in tokenizer_config.json"
        )
    return loaded


def text_ids(tokenizer: Any) -> Callable[[str], list[int]]:
    """Return the function that gives a tokenizer's ids for a text, of which no part becomes a control token."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return tokenizer.text_ids
    encode = partial(tokenizer, add_special_tokens=False, split_special_tokens=True, verbose=False)
    return lambda text: list(encode(text)["input_ids"])


def _tokenizer_class(folder: Path) -> Any:
    """Return the class that reads a folder's own file as it is, if there is one."""
    if (folder / JSON).is_file():
        return PreTrainedTokenizerFast
    model = sentencepiece_model(folder)
    return AutoTokenizer if model is None else reader_of(model.name)


def _complete(folder: Path, tokenizer: Any) -> None:
    """Set the special tokens that only the model's config.json names, as ids."""
    settings = tokenizer_settings.read(folder)
    for key in ("bos_token", "eos_token"):
        number = tokenizer_settings.model_id(folder, settings, key)
        if getattr(tokenizer, key) is None and number in tokenizer.get_vocab().values():
            setattr(tokenizer, key, tokenizer.convert_ids_to_tokens(number))


def end_id(*candidates: Any) -> int | None:
    """Return the first eos_token_id that is set, and the first one of a list; None if there is none."""
    given = (ids[0] if isinstance(ids, list) else ids for ids in candidates if ids not in (None, []))
    return next(map(int, given), None)
