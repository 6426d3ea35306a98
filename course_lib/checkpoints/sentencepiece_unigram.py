"""The Unigram model in a sentencepiece file: its entries with scores and types, and how it prepares a text.

Field numbers: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto. The module of the
sentencepiece package for this format refuses the older protobuf of requirements.txt.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from course_lib.checkpoints.protobuf import fields

# Fields of ModelProto, of TrainerSpec and of NormalizerSpec.
PIECE, TRAINER, NORMALIZER = 1, 2, 3
MODEL_TYPE = 3
CHARSMAP, DUMMY_PREFIX, EXTRA_WHITESPACES = 2, 3, 4
# Value of MODEL_TYPE, and its default.
UNIGRAM = 1


class Kind(IntEnum):
    """What an entry is; the numbers are those of sentencepiece, and of GGUF's token types."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Entry:
    """An entry of the vocabulary."""

    piece: str
    score: float  # natural logarithm of the probability
    kind: Kind


@dataclass(frozen=True)
class UnigramModel:
    """What a sentencepiece file says about encoding."""

    entries: list[Entry]
    charsmap: bytes  # replacements of characters, compiled by sentencepiece; empty: none
    adds_prefix: bool  # a space before the text
    removes_extra_whitespaces: bool

    @property
    def unknown(self) -> int:
        """Return the id of <unk>."""
        return next(number for number, entry in enumerate(self.entries) if entry.kind == Kind.UNKNOWN)


def read(path: Path) -> UnigramModel | None:
    """Return the model in a sentencepiece file that can be loaded, or None if it is no Unigram, such as a BPE."""
    parts = list(fields(path.read_bytes()))
    trainer, normalizer = (_inner(parts, number) for number in (TRAINER, NORMALIZER))
    if trainer.get(MODEL_TYPE, UNIGRAM) != UNIGRAM:
        return None
    entries = [_entry(content) for number, content in parts if number == PIECE]
    return UnigramModel(
        entries,
        normalizer.get(CHARSMAP, b""),
        bool(normalizer.get(DUMMY_PREFIX, True)),
        bool(normalizer.get(EXTRA_WHITESPACES, True)),
    )


def _inner(parts: list[tuple[int, Any]], wanted: int) -> dict[int, Any]:
    """Return the fields of the inner message with a number."""
    return {key: value for number, content in parts if number == wanted for key, value in fields(content)}


def _entry(content: bytes) -> Entry:
    found = dict(fields(content))
    (score,) = struct.unpack("<f", found.get(2, bytes(4)))
    return Entry(found[1].decode(), score, Kind(found.get(3, Kind.NORMAL)))
