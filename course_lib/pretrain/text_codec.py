"""Raw text → ids → text for the tokenizer of a model folder, as its model was trained.

A folder with preparation.json (ours) has its text normalized and segmented first; any other folder of Hugging Face takes it as it stands.
No special tokens are added: a T5 tokenizer (rinna's models) would put an end of text behind every prompt.
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
    """What stands between a text and a model."""

    tokenizer: Any  # of transformers
    codec: Codec | None  # with its preparation, where the folder has one

    def __len__(self) -> int:
        """Entries; a model may have more rows."""
        return len(self.tokenizer)

    @property
    def begin(self) -> int | None:
        """The id behind which a text begins. Ours begin behind the end of another: training has never seen another beginning."""
        found: int | None = self.tokenizer.eos_token_id if self.codec else self.tokenizer.bos_token_id
        return found

    def shown(self, text: str) -> str:
        """The text in the form that decoding gives back."""
        return normalize(text) if self.codec else text

    def encode(self, text: str) -> list[int]:
        """Ids of a raw text, without specials."""
        if self.codec:
            return self.codec.encode(text)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""
        if self.codec:
            text, preparation = self.codec.decode(ids), self.codec.preparation
            return text if preparation.marked or not preparation.segmented else text.replace(" ", "")
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def continuation(self, prompt: list[int], new: list[int]) -> str:
        """The text of `new` behind `prompt`: decoded together, as words and characters may join at the boundary."""
        head, whole = self.decode(prompt), self.decode(prompt + new)
        # Bytes of half a character behind a prompt of bytes spoil the decoding of both
        return whole[len(head) :] if whole.startswith(head) else self.decode(new)


def load(folder: Path) -> TextCodec:
    """The codec of a model or tokenizer folder. Raises CourseError if it holds no tokenizer."""
    tokenizer = load_tokenizer(folder)
    return TextCodec(tokenizer, tokenizers.load(folder) if (folder / "preparation.json").is_file() else None)
