"""Tokenizer for folders with a sentencepiece model, such as rinna's, whose ids are those of sentencepiece itself.

These folders name the class T5Tokenizer, which in transformers 5 rebuilds the model for T5's own vocabulary.
"""

from itertools import groupby
from pathlib import Path

from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

from course_lib.files import read_json

MODEL = "spiece.model"


class SentencePieceTokenizer(SentencePieceBackend):  # type: ignore[misc]
    """Tokenizer in a folder with `spiece.model` and `tokenizer_config.json`. It adds no special tokens to a text."""

    vocab_files_names = {"vocab_file": MODEL}  # noqa: RUF012
    model_input_names = ("input_ids", "attention_mask")

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Return the text for a list of tokens. sentencepiece decodes them; special tokens are left unchanged."""
        special = set(self.all_special_tokens)
        runs = groupby(tokens, special.__contains__)
        return "".join("".join(run) if is_special else self.sp_model.decode(list(run)) for is_special, run in runs)


def is_sentencepiece(folder: Path) -> bool:
    """Return whether a tokenizer folder has only a sentencepiece model and names the class T5Tokenizer."""
    config = folder / "tokenizer_config.json"
    return (
        (folder / MODEL).is_file()
        and not (folder / "tokenizer.json").is_file()
        and config.is_file()
        and str(read_json(config).get("tokenizer_class")).startswith("T5Tokenizer")
    )
