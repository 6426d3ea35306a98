"""tokenizer.json as the library `tokenizers` reads it; for texts, no name of a special token is matched in them.

`encode_special_tokens` of `tokenizers` is not enough: it leaves the name to the model, and a Unigram model, for
example, has the name as a piece.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, pre_tokenizers

from course_lib.checkpoints import tokenizer_settings
from course_lib.checkpoints.tokenizer_files import JSON
from course_lib.errors import CourseError

# Entry for a line break in rinna's models: https://huggingface.co/rinna/japanese-gpt-neox-3.6b-instruction-ppo
LINE_BREAK = "<NL>"
# Regular expression for the rest of a byte token, such as <0xE3>, after its first character.
BYTE_REST = "0x[0-9A-F]{2}>"


def read(folder: Path) -> Tokenizer:
    """Return the tokenizer of a folder as its tokenizer.json says, but without truncation and padding."""
    try:
        tokenizer = Tokenizer.from_file(str(folder / JSON))
    # `tokenizers` raises plain Exception.
    except Exception as error:
        raise CourseError(f"{folder}: not a tokenizer folder, no tokenizer.json that can be read: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def load(folder: Path) -> Tokenizer:
    """Return the tokenizer of a folder for texts: names of special tokens and of byte tokens in a text are text.

    All other texts have the ids of `read`. LINE_BREAK stays a token: `TextTokenizer` writes line breaks with it.
    """
    tokenizer, settings = read(folder), tokenizer_settings.read(folder)
    registered = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    names = (registered | tokenizer_settings.every_name(settings)) - {LINE_BREAK}
    tokenizer = _with_special(tokenizer, names)
    tokenizer.encode_special_tokens = True
    # The course's own files (subword/folder.py) match no name by themselves, in any engine, and register none.
    if registered or not settings.get("split_special_tokens"):
        _break_up(tokenizer, names)
    return tokenizer


def special_id(folder: Path, tokenizer: Tokenizer, key: str) -> int | None:
    """Return the id of a special token, such as "eos_token", by tokenizer_config.json or config.json; None: none."""
    settings = tokenizer_settings.read(folder)
    if name := tokenizer_settings.names(settings).get(key):
        return tokenizer.token_to_id(name)
    number = tokenizer_settings.model_id(folder, settings, key)
    return None if number is None or tokenizer.id_to_token(number) is None else number


def _with_special(tokenizer: Tokenizer, names: set[str]) -> Tokenizer:
    """Return the tokenizer with just those added tokens special that are in `names`."""
    added = tokenizer.get_added_tokens_decoder().values()
    if all(token.special == (token.content in names) for token in added):
        return tokenizer
    content = json.loads(tokenizer.to_str())
    for token in content["added_tokens"]:
        token["special"] = token["content"] in names
    return Tokenizer.from_str(json.dumps(content))


def _break_up(tokenizer: Tokenizer, names: Iterable[str]) -> None:
    """Make the pre-tokenizer part the first character of each name from the rest of it, so that no model joins them."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    rests: dict[str, list[str]] = {}
    for name in sorted(names):
        if len(name) > 1 and name in vocabulary:
            rests.setdefault(name[0], []).append(re.escape(name[1:]))
    # `tokenizers` does not say whether a Unigram model has byte fallback, which needs all 256 names.
    if "<0x00>" in vocabulary:
        rests.setdefault("<", []).append(BYTE_REST)
    if not rests:
        return
    pattern = "|".join(f"{re.escape(first)}(?=(?:{'|'.join(each)}))" for first, each in rests.items())
    parted = pre_tokenizers.Split(Regex(pattern), "isolated")
    original = tokenizer.pre_tokenizer
    tokenizer.pre_tokenizer = parted if original is None else pre_tokenizers.Sequence([original, parted])
