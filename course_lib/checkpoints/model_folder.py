"""Loaders for the configuration, model and tokenizer in a Hugging Face folder, based on transformers."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.integrations import is_deepspeed_zero3_enabled

from course_lib.checkpoints import tokenizer_settings, weight_files
from course_lib.checkpoints.quiet import quiet
from course_lib.checkpoints.sentencepiece_tokenizer import SentencePieceTokenizer, reader_of
from course_lib.checkpoints.tokenizer_files import JSON, require_tokenizer, sentencepiece_model
from course_lib.errors import CourseError, one_line
from course_lib.files import read_json, write_json
from course_lib.language.words import tr

CONFIG, GENERATION = "config.json", "generation_config.json"
# A model may have this many times the numbers in its files, such as a copy of the embedding as the output layer.
SURPLUS = 3
SETTINGS = (GENERATION, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


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


def save_model(model: Any, folder: Path) -> None:
    """Write a model to a Hugging Face folder. It is none of DeepSpeed's engines, whose import would take 1.7 s."""
    from accelerate.utils import other as accelerate

    with quiet(), mock.patch.object(accelerate, "is_deepspeed_available", return_value=False):
        model.save_pretrained(folder)


def load_weights(model_class: Any, folder: Path, config: Any, **options: Any) -> Any:
    """Load a model in eval mode with `model_class.from_pretrained`; no weight may be missing, unknown or not finite."""
    _require_plausible(model_class, folder, config)
    # transformers silently ignores a damaged generation_config.json and so loses the end-of-text token.
    check_settings(folder)
    options |= {"config": config, "local_files_only": True, "ignore_mismatched_sizes": True}
    try:
        with quiet():
            model, found = model_class.from_pretrained(folder, output_loading_info=True, **options)
    # A damaged folder can raise any exception.
    except Exception as error:
        file = weight_files.files(folder)[0]
        if file.suffix != ".safetensors":
            problem = f"{file}: a pickle that transformers does not load"
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


def require_layers(folder: Path, config: Any, tensors: int) -> None:
    """Raise CourseError if config.json asks for more layers than the folder's weights have tensors."""
    layers = getattr(config, "num_hidden_layers", 0)
    if not isinstance(layers, int) or layers > tensors:
        raise CourseError(f"{folder}: {CONFIG} says {layers!r} layers, the weights are {tensors} tensors")


def _require_plausible(model_class: Any, folder: Path, config: Any) -> None:
    """Raise CourseError if a folder's weights are no floats, or far fewer numbers than config.json asks for.

    transformers would convert integers, and would allocate every size in config.json before it reads the weights.
    """
    stored = weight_files.by_name(folder)
    for name, tensor in stored.items():
        weight_files.require_float(folder, name, tensor)
    require_layers(folder, config, len(stored))
    if is_deepspeed_zero3_enabled():
        # transformers would shard the model, which it cannot do on the meta device.
        return
    try:
        # `from_config` is that of AutoModelForCausalLM.
        create = getattr(model_class, "from_config", model_class)
        with torch.device("meta"), quiet():
            wanted = sum(parameter.numel() for parameter in create(config).parameters())
    except Exception as error:
        raise CourseError(f"{folder / CONFIG}: not readable as a model: {one_line(error)}") from error
    found = sum(tensor.numel() for tensor in stored.values())
    # Where less is missing, the loader names the weights.
    if wanted > SURPLUS * found:
        raise CourseError(f"{folder}: {CONFIG} describes {wanted:,} parameters, the weights hold {found:,}")


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


def end_ids(*candidates: Any) -> list[int]:
    """Return the ids of the first eos_token_id that is set, each of which ends a text; empty if there is none."""
    given = (ids if isinstance(ids, list) else [ids] for ids in candidates if ids not in (None, []))
    return [int(number) for number in next(given, []) if number is not None and number >= 0]


def generation_defaults(folder: Path) -> dict[str, Any]:
    """Return the content of generation_config.json in a model or tokenizer folder; empty if there is none."""
    path = folder / GENERATION
    defaults = read_json(path) if path.is_file() else {}
    for name in ("bos_token_id", "eos_token_id"):
        ids = value if isinstance(value := defaults.get(name), list) else [value]
        if not all(number is None or type(number) is int for number in ids):
            raise CourseError(f"{path}: {name} is {value!r}; allowed: the id of a token, or a list of them")
    return defaults


def opening_id(folder: Path) -> int | None:
    """Return the id before each text of a model that `course export` wrote, or None.

    Its generation_config.json begins a text with the end of the one before it, as in training; in config.json, the
    begin of a text is that of the tokenizer. Other models, such as OpenAI's GPT-2, have one id for both in both files.
    """
    defaults = generation_defaults(folder)
    config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    begin = defaults.get("bos_token_id")
    is_end = isinstance(begin, int) and begin == defaults.get("eos_token_id") != config.get("bos_token_id")
    return begin if is_end else None


def write_generation_settings(model: Path, target: Path, keys: Iterable[str]) -> None:
    """Write a generation_config.json with what ends a text of a model folder, what precedes it, and these keys."""
    config, opening = read_config(model), opening_id(model)
    own = generation_defaults(model)
    ends = end_ids(own.get("eos_token_id"), config.eos_token_id)
    settings: dict[str, Any] = {"eos_token_id": [end for end in ends if end < config.vocab_size]}
    settings |= {} if opening is None else {"bos_token_id": opening, "eos_token_id": opening}
    settings |= {key: own[key] for key in keys if own.get(key) is not None}
    write_json(target / GENERATION, settings)
