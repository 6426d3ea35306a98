"""Character n-grams of a text as numbers: what the repetition filter and the near-duplicate search both count.

Japanese has no spaces to split on, so runs of n characters stand for words. Each run becomes one 64-bit number, made by
numpy for the whole text at once (over 200 MB/s); different runs share a number with a chance of about 2^-64.
"""

import re
import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd: the step of the polynomial
MIX = np.uint64(0xD6E8FEB86659FD93)
VOICED = re.compile("[ｦ-ﾟ]+|[ぁ-ヿ][\u3099\u309a]")  # kana whose voice mark may be a character of its own


def code_points(text: str) -> npt.NDArray[np.uint32]:
    """The characters of a text as numbers."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def folded(text: str) -> npt.NDArray[np.uint32]:
    """The characters of a text as numbers, white space left out and widths made equal: Ａ as A, ｶﾞ as ガ.

    This is NFKC except for signs that stand for several characters (㈱ and … stay), at five times its speed.
    """
    codes: npt.NDArray[np.uint32] = _folding()[
        code_points(VOICED.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text))
    ]
    dense: npt.NDArray[np.uint32] = codes[codes != 0]
    return dense


def gram_hashes(codes: npt.NDArray[np.uint32], size: int) -> Hashes:
    """One number for each run of `size` characters, in order; a shorter text gives one for the whole."""
    if len(codes) < size:
        codes = np.pad(codes, (0, size - len(codes)))
    length = len(codes) - size + 1
    hashes = codes[:length].astype(np.uint64)
    for shift in range(1, size):
        hashes *= MULTIPLIER
        hashes += codes[shift : shift + length]
    hashes ^= hashes >> np.uint64(32)
    hashes *= MIX
    hashes ^= hashes >> np.uint64(32)
    return hashes


@cache
def _folding() -> npt.NDArray[np.uint32]:
    """Code point → code point of its one-character NFKC form, 0 for white space. 4.5 MB, made once in each process."""
    table = np.arange(0x110000, dtype=np.uint32)
    for code in range(0x30000):  # beyond them no character has another form
        character = chr(code)
        normal = unicodedata.normalize("NFKC", character)
        if character.isspace():
            table[code] = 0
        elif len(normal) == 1 and normal != character:
            table[code] = ord(normal)
    return table
