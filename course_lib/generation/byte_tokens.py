"""Which tokens may come next, so that the byte tokens in a generated text always form whole characters.

A byte-fallback tokenizer writes a character outside its vocabulary as one token per UTF-8 byte. A model can choose such
tokens in an order that is not UTF-8, and decoding then shows U+FFFD (�). `course generate` and GPTSAN choose tokens
that the table in this module allows; engines that take no mask drop the bytes that form no character.

- Well-formed sequences are those in table 3-7 of the Unicode Standard (https://www.unicode.org/versions/Unicode16.0.0/
  core-spec/chapter-3/#G27506), as in RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
- U+FFFD itself is never written: it stands for text that could not be decoded.
- A character begins only if its remaining bytes fit into the remaining tokens, so a text that ends at the length limit
  ends with a whole character.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import decoders

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
TAIL = range(0x80, 0xC0)
# State → (allowed bytes, next state). A state other than the first two is inside a character.
RULES: dict[str, tuple[tuple[range, str], ...]] = {
    "text": (
        (range(0x80), "text"), (range(0xC2, 0xE0), "1 left"), (range(0xE0, 0xE1), "E0"), (range(0xE1, 0xED), "2 left"),
        (range(0xED, 0xEE), "ED"), (range(0xEE, 0xEF), "2 left"), (range(0xEF, 0xF0), "EF"), (range(0xF0, 0xF1), "F0"),
        (range(0xF1, 0xF4), "3 left"), (range(0xF4, 0xF5), "F4"),
    ),
    # After the last byte of a character. Allows what "text" allows, except for the `repeat` token of ByteTokens.
    "ended": (),
    "1 left": ((TAIL, "ended"),),
    "2 left": ((TAIL, "1 left"),),
    "3 left": ((TAIL, "2 left"),),
    "E0": ((range(0xA0, 0xC0), "1 left"),),
    "ED": ((range(0x80, 0xA0), "1 left"),),
    "EF": ((range(0x80, 0xBF), "1 left"), (range(0xBF, 0xC0), "EF BF")),
    # EF BF BD is U+FFFD.
    "EF BF": ((range(0x80, 0xBD), "ended"), (range(0xBE, 0xC0), "ended")),
    "F0": ((range(0x90, 0xC0), "2 left"),),
    "F4": ((range(0x80, 0x90), "2 left"),),
}  # fmt: skip
RULES["ended"] = RULES["text"]
STATES = tuple(RULES)
TEXT, ENDED = 0, 1
# Bytes missing in each state.
MISSING = (0, 0, 1, 2, 3, 2, 2, 2, 1, 3, 3)
# A state and its last three tokens determine the next state: a character has at most four bytes.
RECENT = 3
# Most bytes, and so byte tokens, of a character: with this number of remaining tokens, every character fits.
LONGEST_CHARACTER = 4
NEXT = [{byte: STATES.index(state) for allowed, state in rules for byte in allowed} for rules in RULES.values()]


class ByteTokens:
    """The table for one vocabulary.

    `after` is the state after a token [states, tokens]; if the token is not allowed, what is before it counts as lost.
    `blocked` says whether a token is not allowed [remaining tokens − 1, states, tokens], for up to
    LONGEST_CHARACTER remaining tokens. `has_bytes` says whether any token is a part of a character; if not, no text can
    break.
    """

    def __init__(self, pieces: Sequence[bytes | None], repeat: int | None = None) -> None:
        """Build the table from the UTF-8 of each token: one byte for a byte token, None for an id never generated.

        The token `repeat` stands for copies of the token before it, so it may not follow a character's last byte.
        """
        self.after: npt.NDArray[np.int32] = np.full((len(STATES), len(pieces)), TEXT, np.int32)
        allowed = np.zeros((len(STATES), len(pieces)), bool)
        allowed[[TEXT, ENDED]] = True
        self.has_bytes = False
        for token, piece in enumerate(pieces):
            whole = _decoded(piece)
            if whole is None:
                self.has_bytes |= bool(piece)
                for state in range(len(STATES)):
                    allowed[state, token], self.after[state, token] = _walk(state, piece or b"")
            elif "\ufffd" in whole:
                allowed[:, token] = False
        if repeat is not None:
            allowed[ENDED, repeat] = False
        missing = np.asarray(MISSING)[self.after]
        self.blocked = np.stack([~allowed | (missing > remaining - 1) for remaining in range(1, LONGEST_CHARACTER + 1)])

    def whole(self, ids: Sequence[int]) -> list[int]:
        """Return `ids` without the byte tokens that form no whole character, such as half a character at the end."""
        whole: list[int] = []
        unfinished: list[int] = []
        # `last` is the state after the tokens in `whole`.
        state = last = TEXT
        for token in ids:
            if self.blocked[-1, state, token]:
                state, unfinished = last, []
                if self.blocked[-1, last, token]:
                    continue
            state = int(self.after[state, token])
            unfinished.append(token)
            if not MISSING[state]:
                whole += unfinished
                unfinished, last = [], state
        return whole


def _decoded(piece: bytes | None) -> str | None:
    """Return the text of a piece, or None if it is a part of a character or never generated."""
    try:
        return piece.decode() if piece else None
    except UnicodeDecodeError:
        return None


def _walk(state: int, piece: bytes) -> tuple[bool, int]:
    """Return whether a piece may follow in a state, and the state after it. The empty piece may never follow."""
    allowed = bool(piece)
    for byte in piece:
        if byte not in NEXT[state]:
            allowed, state = False, TEXT
        state = NEXT[state].get(byte, ENDED)
    return allowed, state


@lru_cache(maxsize=8)
def of_tokenizer(tokenizer: Any, rows: int | None = None) -> ByteTokens:
    """Return the table for a tokenizer with byte fallback (`<0xE3>`), byte-level BPE (`ã`) or neither.

    `rows` is the model's vocabulary size: it may have rows without an entry, and the tokenizer entries without a row.
    """
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    pieces: list[bytes | None] = [None] * max(rows or 0, 1 + max(vocabulary.values(), default=0))
    values = {name: int(match[1], 16) for name in vocabulary if (match := BYTE.fullmatch(name))}
    backend, letter_bytes = getattr(tokenizer, "backend_tokenizer", None), {}
    if backend is not None and isinstance(backend.decoder, decoders.ByteLevel):
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        letter_bytes = {letter: byte for byte, letter in bytes_to_unicode().items()}
    if not set(TAIL) <= set(values.values()):
        values = {}
    for name, i in vocabulary.items():
        letters = [letter_bytes.get(letter) for letter in name]
        if name in values:
            pieces[i] = bytes([values[name]])
        elif None in letters:
            pieces[i] = name.encode("utf8", "surrogatepass")
        else:
            pieces[i] = bytes(byte for byte in letters if byte is not None)
    return ByteTokens(pieces[:rows])
