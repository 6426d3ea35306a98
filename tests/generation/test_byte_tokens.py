"""Byte tokens: the table against Python's UTF-8, and every tokenizer of the course under random logits."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import numpy as np
import pytest
from course_lib.generation import byte_tokens
from course_lib.generation.byte_tokens import ENDED, LONGEST_CHARACTER, MISSING, NEXT, TEXT, ByteTokens
from course_lib.gptsan.generate import byte_table
from course_lib.pretrain import text_codec
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from tests.gptsan.test_tokenizer import ENCODING
from tests.pretrain import models

BROKEN = "\N{REPLACEMENT CHARACTER}"
KINDS = ("bpe", "gptsan", "byte-level")
# What no text can hold: half a surrogate pair. U+FFFD is never written.
CHARACTERS = st.characters(codec="utf-8", exclude_characters=BROKEN)


class Words(NamedTuple):
    """A vocabulary: its table, how it decodes, and the token of each byte."""

    table: ByteTokens
    decode: Callable[[list[int]], str]
    bytes: dict[int, int]


def fallback(folder: Path) -> Words:
    codec = text_codec.load(folder)
    names = {f"<0x{value:02X}>": value for value in range(256)}
    ids = {names[name]: i for name, i in codec.tokenizer.get_vocab().items() if name in names}
    return Words(byte_tokens.of_tokenizer(codec.tokenizer), lambda new: codec.continuation([], new), ids)


@cache
def words(kind: str) -> Words:
    if kind == "bpe":
        return fallback(models.tokenizer(Path(mkdtemp())))
    if kind == "gptsan":
        bytes_of = {value: ENCODING.ids[f"<|byte{value}|>"] for value in range(255)}
        return Words(byte_table(ENCODING, len(ENCODING)), ENCODING.decode, bytes_of)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    joined = ["ãģ", "Ĥã", "ãģĤ", "ab", "Ġã"]
    tokenizer = Tokenizer(BPE({name: i for i, name in enumerate(letters + joined)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    byte_of = {letter: byte for byte, letter in bytes_to_unicode().items()}
    ids = {byte_of[letter]: i for i, letter in enumerate(letters)}
    return Words(byte_tokens.of_tokenizer(fast), lambda new: str(fast.decode(new)), ids)


def state(table: ByteTokens, ids: list[int], remaining: int) -> int:
    """The state after `ids` with `remaining` tokens left."""
    after = TEXT
    for token in ids:
        after = int(table.after[after, token])
    return after if MISSING[after] <= remaining else TEXT


def first_wrong(table: ByteTokens, before: list[int], new: list[int], remaining: int) -> int | None:
    """The index of the first token in `new` that may not follow the ids `before`, or None."""
    for index, token in enumerate(new):
        left = remaining - index
        if table.blocked[min(left, LONGEST_CHARACTER) - 1, state(table, before + new[:index], left), token]:
            return index
    return None


def drawn(table: ByteTokens, length: int, seed: int) -> list[int]:
    """Random logits: one of the allowed tokens each time; byte tokens are as likely as all others together."""
    rng = np.random.default_rng(seed)
    ids: list[int] = []
    while len(ids) < length:
        remaining = length - len(ids)
        allowed = ~table.blocked[min(remaining, LONGEST_CHARACTER) - 1, state(table, ids, remaining)]
        ids.append(int(rng.choice(allowed.nonzero()[0])))
    return ids


def test_the_table_accepts_all_characters_and_nothing_else() -> None:
    accepted: set[bytes] = set()

    def follow(state: int, begun: bytes) -> None:
        for byte, after in NEXT[state].items():
            if MISSING[after]:
                follow(after, begun + bytes([byte]))
            else:
                accepted.add(begun + bytes([byte]))

    follow(TEXT, b"")
    characters = (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    assert accepted == {character.encode() for character in characters if character != BROKEN}


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 1 << 32), length=st.integers(1, 12))
def test_random_logits_never_break_a_character(kind: str, seed: int, length: int) -> None:
    vocabulary = words(kind)
    assert BROKEN not in vocabulary.decode(drawn(vocabulary.table, length, seed))


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(CHARACTERS, min_size=1, max_size=4))
def test_every_character_can_be_written(kind: str, text: str) -> None:
    vocabulary = words(kind)
    ids = [vocabulary.bytes[value] for value in text.encode()]
    assert first_wrong(vocabulary.table, [], ids, len(ids)) is None
    assert vocabulary.table.whole(ids) == ids
    last = len(text[-1].encode())
    if last > 1:
        # With one token less, the last character would be cut, so it may not begin.
        assert first_wrong(vocabulary.table, [], ids, len(ids) - 1) == len(ids) - last


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=200)
@given(data=st.data())
def test_what_forms_no_character_is_dropped(kind: str, data: Any) -> None:
    vocabulary = words(kind)
    ids = data.draw(st.lists(st.one_of(
        st.sampled_from([*vocabulary.bytes.values()]), st.integers(0, len(vocabulary.table.after[0]) - 1)
    ), max_size=12))  # fmt: skip
    whole = vocabulary.table.whole(ids)
    assert BROKEN not in vocabulary.decode(whole)
    assert (whole == ids) == (first_wrong(vocabulary.table, [], ids, len(ids)) is None)


def test_nothing_repeats_the_last_byte_of_a_character() -> None:
    """GPTSAN's BAG stands for two more of the token before it."""
    table, bag, dog = words("gptsan").table, ENCODING.bag, ENCODING.ids["犬"]
    byte = words("gptsan").bytes
    assert first_wrong(table, [], [dog, bag, byte[65], bag, *(byte[value] for value in "あ".encode())], 9) is None
    assert first_wrong(table, [], [*(byte[value] for value in "あ".encode()), bag], 9) == 3
    assert table.whole([dog, bag, byte[0xE3], bag]) == [dog, bag, bag]


def test_a_prompt_that_ends_within_a_character() -> None:
    """It is completed, unless too few tokens are left for that."""
    table, byte = words("bpe").table, words("bpe").bytes
    begun = [byte[0xF0], byte[0xA0]]
    assert first_wrong(table, begun, [byte[0xAE], byte[0xB7]], 2) is None
    assert first_wrong(table, begun, [byte[0x41]], 2) == 0
    assert first_wrong(table, begun, [byte[0x41]], 1) is None


def test_a_vocabulary_without_bytes_is_left_alone(tmp_path: Path) -> None:
    codec = text_codec.load(models.tokenizer(tmp_path, lossless=False))
    table = byte_tokens.of_tokenizer(codec.tokenizer, len(codec) + 2)
    assert not table.has_bytes
    assert not table.blocked[:, : ENDED + 1, : len(codec)].any() and table.blocked[..., len(codec) :].all()


def test_a_token_of_broken_text_is_never_written() -> None:
    table = ByteTokens([b"a", BROKEN.encode(), b"\xef", b"\xbf", b"\xbd", b"", None])
    assert table.blocked[-1, TEXT].tolist() == [False, True, False, True, True, True, True]
    assert first_wrong(table, [], [2, 3, 4], 3) == 2
