"""Codec for a model folder: raw text to token ids, and token ids to text.

If the folder has the course's preparation.json, text is normalized and segmented first. Any other Hugging Face
tokenizer receives the text unchanged, except that every line break becomes \\n. No special tokens are added: a T5
tokenizer, which rinna's models use, would append an end-of-text token to every prompt. No part of a text becomes a
control token. If the tokenizer has the entry `<NL>`, it stands for a line break, as rinna's instruction models ask for;
other sentencepiece tokenizers read a line break as a space.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.checkpoints import text_tokenizer
from course_lib.checkpoints.model_folder import end_ids, generation_defaults, load_tokenizer, opening_id
from course_lib.documents import with_newlines
from course_lib.japanese import normalize
from course_lib.subword import folder as tokenizers
from course_lib.subword.folder import Codec


@dataclass(frozen=True)
class TextCodec:
    """The tokenizer from a model folder, together with its text preparation."""

    tokenizer: Any  # the transformers tokenizer
    codec: Codec | None  # the course codec, or None if the folder has no preparation.json
    ids: Callable[[str], list[int]]  # the ids of a raw text: that of the codec, or of the folder's own files
    line_break: str = "\n"  # how the tokenizer writes a line break
    opening: tuple[int, ...] = ()  # the ids that precede each text of a base that the course trained on documents
    ends: tuple[int, ...] = ()  # the ids that end a text; empty if the folder names none

    def __len__(self) -> int:
        """Return the number of tokenizer entries; the model's vocabulary size can be larger."""
        return len(self.tokenizer)

    @property
    def begin(self) -> int | None:
        """Id of the token that precedes a text, or None; for course tokenizers the end of the text before."""
        begin: int | None = self.tokenizer.eos_token_id if self.codec else self.tokenizer.bos_token_id
        return begin

    def shown(self, text: str) -> str:
        """Return the text as decoding returns it: normalized if the folder has preparation.json, else with its line
        breaks as \\n.
        """
        return normalize(text) if self.codec else with_newlines(text)

    def encode(self, text: str) -> list[int]:
        """Return the token ids for raw text, without special tokens."""
        return self.ids(text)

    def prompt(self, text: str) -> list[int]:
        """Return the token ids that a model without a prefix reads before it continues a raw text."""
        begin = [] if self.begin is None else [self.begin]
        return [*self.opening, *self.encode(text)] or begin

    def decode(self, ids: list[int]) -> str:
        """Return the text for a list of token ids."""
        if self.codec:
            text, preparation = self.codec.decode(ids), self.codec.preparation
            return text if preparation.marked or not preparation.segmented else text.replace(" ", "")
        text = str(self.tokenizer.decode(ids, skip_special_tokens=True))
        return text.replace(self.line_break, "\n")

    def continuation(self, prompt: list[int], new: list[int]) -> str:
        """Return the text for the ids in `new`, which follow the ids in `prompt`."""
        # Both are decoded together, because a word can span the boundary. If the boundary falls inside a multi-byte
        # character, the joint text may not start with the prompt's text, so `new` is decoded alone.
        head, whole = self.decode(prompt), self.decode(prompt + new)
        return whole[len(head) :] if whole.startswith(head) else self.decode(new)


def load(folder: Path) -> TextCodec:
    """Load the TextCodec for a model or tokenizer folder."""
    tokenizer = load_tokenizer(folder)
    ends = tuple(end_ids(generation_defaults(folder).get("eos_token_id"), tokenizer.eos_token_id))
    if not (folder / "preparation.json").is_file():
        texts = text_tokenizer.load(folder)
        return TextCodec(tokenizer, None, texts.encode, texts.line_break, ends=ends)
    codec = tokenizers.load(folder)
    begin = opening_id(folder)
    opening = (begin,) if begin is not None and begin == tokenizer.eos_token_id else ()
    return TextCodec(tokenizer, codec, codec.encode, opening=opening, ends=ends)
