"""Codec of a model folder: raw text to token ids, and token ids to text.

If the folder has the course's preparation.json, text is normalized and segmented first. Any other Hugging Face
tokenizer gets it unchanged. No special tokens are added: a T5 tokenizer (rinna's models) would append an end-of-text
token to every prompt.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.checkpoints.model_folder import load_tokenizer
from course_lib.japanese import normalize
from course_lib.subword import folder as tokenizers
from course_lib.subword.folder import Codec


@dataclass(frozen=True)
class TextCodec:
    """The tokenizer of a model folder, together with the preparation of its text."""

    tokenizer: Any  # the transformers tokenizer
    codec: Codec | None  # the course's codec, if the folder has preparation.json

    def __len__(self) -> int:
        """Return the tokenizer's number of entries; the model's vocabulary size can be larger."""
        return len(self.tokenizer)

    @property
    def begin(self) -> int | None:
        """The token id that precedes a text, or None.

        For tokenizers of the course this is the eos token, because in the training data a text always follows another.
        """
        begin: int | None = self.tokenizer.eos_token_id if self.codec else self.tokenizer.bos_token_id
        return begin

    def shown(self, text: str) -> str:
        """Return the text as decoding returns it: normalized if the folder has preparation.json, else unchanged."""
        return normalize(text) if self.codec else text

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a raw text, without special tokens."""
        if self.codec:
            return self.codec.encode(text)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: list[int]) -> str:
        """Return the text of token ids."""
        if self.codec:
            text, preparation = self.codec.decode(ids), self.codec.preparation
            return text if preparation.marked or not preparation.segmented else text.replace(" ", "")
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def continuation(self, prompt: list[int], new: list[int]) -> str:
        """Return the text of the ids `new` after the ids `prompt`.

        Both are decoded together, because words and characters can join at the boundary.
        """
        head, whole = self.decode(prompt), self.decode(prompt + new)
        # If the boundary lies inside the bytes of a character, the joint text may not begin with the prompt's text.
        # Then `new` is decoded alone.
        return whole[len(head) :] if whole.startswith(head) else self.decode(new)


def load(folder: Path) -> TextCodec:
    """Load the TextCodec of a model or tokenizer folder. Raises CourseError if it holds no tokenizer."""
    tokenizer = load_tokenizer(folder)
    return TextCodec(tokenizer, tokenizers.load(folder) if (folder / "preparation.json").is_file() else None)
