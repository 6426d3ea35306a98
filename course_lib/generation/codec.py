"""The codec interface that a generator needs, and the generated texts. This module does not import torch."""

from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol

from course_lib.errors import UsageError
from course_lib.language.words import tr, tr_noop


class Codec(Protocol):
    """An encoder for prompts and a decoder for continuations, such as `TextCodec` in pretrain/text_codec.py."""

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer."""

    @property
    def begin(self) -> int | None:
        """The token id that precedes a text, or None."""

    @property
    def opening(self) -> tuple[int, ...]:
        """The ids before each text, prompts included, that the model of the folder was trained on; often none."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids that end a text, according to the folder."""

    def __len__(self) -> int:
        """Return the number of entries in the tokenizer; the model's vocabulary size can be larger."""

    def shown(self, text: str) -> str:
        """Return the text in the form in which decoding returns it, for example normalized."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids for raw text, without special tokens."""

    def continuation(self, prompt: list[int], new: list[int]) -> str:
        """Return the text of the `new` ids that follow the `prompt` ids."""


@dataclass(frozen=True)
class Generated:
    """A generated text: the prompt as the codec shows it, and its continuation."""

    prompt: str
    continuation: str

    @property
    def text(self) -> str:
        """The prompt followed by its continuation."""
        return self.prompt + self.continuation


def before_end(ids: list[int], *ends: int) -> list[int]:
    """Return the ids before the first end-of-text token."""
    return list(takewhile(lambda token: token not in ends, ids))


def decode(codec: Codec, prompt: str, ids: list[int], continuations: list[list[int]], *ends: int) -> list[Generated]:
    """Return the texts for several continuations of a prompt, each cut before its end-of-text token."""
    return [Generated(codec.shown(prompt), codec.continuation(ids, before_end(new, *ends))) for new in continuations]


def require_rows(codec: Codec, ids: list[int], rows: int) -> list[int]:
    """Return the ids of a text. Raises UsageError if one is beyond the embedding, as added tokens can be."""
    if (token := max(ids, default=0)) >= rows:
        name = codec.tokenizer.convert_ids_to_tokens(token)
        message = tr_noop("{name!r} in a text is token {token}; the model has an embedding for tokens 0 to {last}")
        raise UsageError(tr(message, name=name, token=token, last=rows - 1))
    return ids
