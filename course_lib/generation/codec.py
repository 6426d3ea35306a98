"""What a generator needs of a codec, and what it returns. This module does not import torch."""

from dataclasses import dataclass
from typing import Any, Protocol


class Codec(Protocol):
    """Encodes prompts and decodes continuations, such as `TextCodec` of pretrain/text_codec.py."""

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer."""

    @property
    def begin(self) -> int | None:
        """The token id that precedes a text, or None."""

    def __len__(self) -> int:
        """The tokenizer's number of entries; the model's vocabulary size can be larger."""

    def shown(self, text: str) -> str:
        """The text as decoding returns it, for example normalized."""

    def encode(self, text: str) -> list[int]:
        """The token ids of a raw text, without special tokens."""

    def continuation(self, prompt: list[int], new: list[int]) -> str:
        """The text of the ids `new` after the ids `prompt`."""


@dataclass(frozen=True)
class Generated:
    """A generated text: the prompt as the codec shows it, and its continuation."""

    prompt: str
    continuation: str

    @property
    def text(self) -> str:
        """The prompt followed by its continuation."""
        return self.prompt + self.continuation


def before_end(ids: list[int], end: int) -> list[int]:
    """The ids before the first end-of-text token."""
    return ids[: ids.index(end)] if end in ids else ids


def decode(codec: Codec, prompt: str, ids: list[int], continuations: list[list[int]], end: int) -> list[Generated]:
    """The texts of the continuations of a prompt with the ids `ids`; each stops before its end-of-text token."""
    shown = codec.shown(prompt)
    return [Generated(shown, codec.continuation(ids, before_end(new, end))) for new in continuations]
