"""Codec for a model folder: raw text to token ids, and token ids to text.

If the folder has the course's preparation.json, text is normalized and segmented first. Any other Hugging Face
tokenizer receives the text unchanged. No special tokens are added: a T5 tokenizer, which rinna's models use, would
append an end-of-text token to every prompt. If the tokenizer has the entry `<NL>`, it stands for a line break, as
rinna's instruction models ask for; other sentencepiece tokenizers read a line break as a space.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.checkpoints.model_folder import end_ids, generation_defaults, load_tokenizer, opening_id
from course_lib.japanese import normalize
from course_lib.subword import folder as tokenizers
from course_lib.subword.folder import Codec

# Entry for a line break in rinna's models: https://huggingface.co/rinna/japanese-gpt-neox-3.6b-instruction-ppo
LINE_BREAK = "<NL>"


@dataclass(frozen=True)
class TextCodec:
    """The tokenizer from a model folder, together with its text preparation."""

    tokenizer: Any  # the transformers tokenizer
    codec: Codec | None  # the course codec, or None if the folder has no preparation.json
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
        """Return the text as decoding returns it: normalized if the folder has preparation.json, else unchanged."""
        return normalize(text) if self.codec else text

    def encode(self, text: str) -> list[int]:
        """Return the token ids for raw text, without special tokens."""
        if self.codec:
            return self.codec.encode(text)
        text = text.replace("\n", self.line_break)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

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
    codec = tokenizers.load(folder) if (folder / "preparation.json").is_file() else None
    line_break = LINE_BREAK if LINE_BREAK in tokenizer.get_vocab() else "\n"
    ends = end_ids(generation_defaults(folder).get("eos_token_id"), tokenizer.eos_token_id)
    begin = opening_id(folder) if codec else None
    opening = () if begin is None or begin != tokenizer.eos_token_id else (begin,)
    return TextCodec(tokenizer, codec, line_break, opening, tuple(ends))
