"""The tokenizer in a folder, for texts: the ids of its own files, the same in every command.

The tokenizer classes of transformers 5 rebuild a tokenizer.json or a sentencepiece model with rules of their own, and
match the names of special tokens in a text. Neither happens here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

from course_lib.checkpoints import tokenizer_json, tokenizer_settings
from course_lib.checkpoints.tokenizer_files import JSON, has_tokenizer
from course_lib.checkpoints.tokenizer_json import LINE_BREAK
from course_lib.documents import with_newlines

KEYS = ("bos_token", "eos_token", "unk_token")


@dataclass(frozen=True)
class TextTokenizer:
    """A tokenizer for raw text. It adds no special tokens, and knows nothing of the course's text preparation."""

    ids: Callable[[str], list[int]]  # the ids of a text as `written` returns it
    vocabulary: Mapping[str, int]
    special_ids: Mapping[str, int | None]  # by KEYS
    is_lower_case: bool
    json: Tokenizer | None = None  # of a folder with a tokenizer.json

    @cached_property
    def line_break(self) -> str:
        """How the tokenizer writes a line break."""
        return LINE_BREAK if LINE_BREAK in self.vocabulary else "\n"

    def written(self, text: str) -> str:
        """Return the text in the form that `ids` takes: in lower case if the folder says so, with its line breaks."""
        if self.is_lower_case:
            text = tokenizer_settings.lowered(text)
        return with_newlines(text).replace("\n", self.line_break)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a raw text; no part of it becomes a control token."""
        return self.ids(self.written(text))


def load(folder: Path) -> TextTokenizer:
    """Return the tokenizer of a folder: its tokenizer.json, else its sentencepiece model, else that of transformers."""
    lower_case = tokenizer_settings.is_lower_case(tokenizer_settings.read(folder))
    if (folder / JSON).is_file() or not has_tokenizer(folder):
        tokenizer = tokenizer_json.load(folder)
        special_ids = {key: tokenizer_json.special_id(folder, tokenizer, key) for key in KEYS}
        return TextTokenizer(_ids_of(tokenizer), tokenizer.get_vocab(), special_ids, lower_case, tokenizer)
    # Imported here, because most folders have a tokenizer.json, and transformers takes two seconds.
    from course_lib.checkpoints import model_folder

    loaded = model_folder.load_tokenizer(folder)
    special_ids = {key: getattr(loaded, f"{key}_id") for key in KEYS}
    return TextTokenizer(model_folder.text_ids(loaded), loaded.get_vocab(), special_ids, lower_case)


def _ids_of(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)
