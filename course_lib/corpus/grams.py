"""Character n-grams of a text as numbers: what the repetition filter and the near-duplicate search both count.

Japanese has no spaces to split on, so runs of n characters stand for words. Each run becomes one 64-bit number, made by
numpy for the whole text at once (over 200 MB/s); different runs share a number with a chance of about 2^-64.
"""

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd: the step of the polynomial
MIX = np.uint64(0xD6E8FEB86659FD93)


def code_points(text: str) -> npt.NDArray[np.uint32]:
    """The characters of a text as numbers."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


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
