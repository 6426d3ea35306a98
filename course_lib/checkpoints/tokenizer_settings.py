"""What the JSON files of a folder say about its tokenizer: names of special tokens, and whether text is lower case."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_lib.checkpoints.tokenizer_files import CONFIG, JSON, MODELS
from course_lib.files import read_json

MAP, MODEL_CONFIG = "special_tokens_map.json", "config.json"
# Keys of tokenizer_config.json with a list of further special tokens; the second one is the name in transformers 5.
LISTS = ("additional_special_tokens", "extra_special_tokens")

# Files that determine the ids of a text; GPTSAN's tokenizer has vocab.txt and emoji.json.
IDS = (JSON, "preparation.json", "vocab.json", "merges.txt", "vocab.txt", "emoji.json", "added_tokens.json", *MODELS)


def read(folder: Path) -> dict[str, Any]:
    """Return tokenizer_config.json, or {}, with the names of special_tokens_map.json, which take precedence."""
    settings = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    # Newer folders list their added tokens in tokenizer_config.json; for them transformers 5 reads no map.
    if "added_tokens_decoder" not in settings and (folder / MAP).is_file():
        settings |= read_json(folder / MAP)
    return settings


def names(settings: dict[str, Any]) -> dict[str, str]:
    """Return the special tokens by their keys, such as {"eos_token": "</s>"}."""
    named = {key: _content(value) for key, value in settings.items() if key.endswith("_token")}
    return {key: name for key, name in named.items() if name}


def every_name(settings: dict[str, Any]) -> set[str]:
    """Return all special tokens, also those without a key."""
    return {*names(settings).values(), *filter(None, map(_content, _without_key(settings)))}


def model_id(folder: Path, settings: dict[str, Any], key: str) -> int | None:
    """Return the id that config.json states for a special token, if the tokenizer's settings do not name the token.

    The folders of OpenAI's GPT-2 name none: https://huggingface.co/openai-community/gpt2/blob/main/config.json
    """
    if key in settings or not (folder / MODEL_CONFIG).is_file():
        return None
    found = read_json(folder / MODEL_CONFIG).get(f"{key}_id")
    if isinstance(found, list) and found:
        found = found[0]
    return found if isinstance(found, int) else None


def is_lower_case(settings: dict[str, Any]) -> bool:
    """Return whether the tokenizer takes text in lower case."""
    return settings.get("do_lower_case") is True


def lowered(text: str) -> str:
    """Return a text in lower case, each character by itself, as T5Tokenizer of transformers 4 and `tokenizers` do.

    Python alone writes a Σ at the end of a word as ς.
    """
    return text.replace("Σ", "σ").lower()


def difference(folder: Path, other: Path) -> str | None:
    """Return the name of the first file by which the tokenizers of two folders differ, or None if they do not.

    Of tokenizer_config.json only special tokens and lower case count: lengths and chat templates change no ids.
    """
    for name in IDS:
        one, two = (path / name if (path / name).is_file() else None for path in (folder, other))
        if (one is None) != (two is None) or (one and two and one.read_bytes() != two.read_bytes()):
            return name
    settings = [read(path) for path in (folder, other)]
    same = all(of(settings[0]) == of(settings[1]) for of in (names, every_name, is_lower_case))
    return None if same else CONFIG


def _without_key(settings: dict[str, Any]) -> Iterator[Any]:
    for key in LISTS:
        value = settings.get(key) or ()
        yield from value.values() if isinstance(value, dict) else value
    added = (settings.get("added_tokens_decoder") or {}).values()
    yield from (token for token in added if isinstance(token, dict) and token.get("special"))


def _content(value: Any) -> str | None:
    """Return a token's text; in the files a token is a string or an object."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None
