"""What deduplication compares: hashes of texts, MinHash signatures of documents, and hashes of the signatures' bands.

rensa computes the signatures, over character n-grams of the folded text (grams.py). repeats.py searches for equal
values.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from rensa import RMinHash

from course_lib.corpus.config import DedupConfig
from course_lib.corpus.grams import MIX, MULTIPLIER, Hashes, folded, gram_hashes

# Seed for MinHash; another seed takes other samples of the same text.
SEED = 42
# MinHash values, [documents, num_perm].
Signatures = npt.NDArray[np.uint32]


def text_hash(text: str) -> int:
    """Return a 64-bit BLAKE2b hash of a text without its whitespace; duplicates have equal hashes on every machine."""
    digest = hashlib.blake2b("".join(text.split()).encode("utf8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def signatures(texts: Iterable[str], settings: DedupConfig) -> Signatures:
    """Return the MinHash signature of each text, [texts, num_perm]."""
    grams = [gram_hashes(folded(text), settings.ngram) for text in texts]
    if not grams:
        return np.empty((0, settings.num_perm), dtype=np.uint32)
    offsets = np.cumsum([0, *map(len, grams)], dtype=np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(np.concatenate(grams), offsets, settings.num_perm, SEED)
    return np.array(matrix.to_rows(), dtype=np.uint32)


def band_hashes(rows: Signatures, num_bands: int) -> Hashes:
    """Return a 64-bit hash of each band of the signatures, [documents, num_bands]."""
    bands = rows.reshape(len(rows), num_bands, rows.shape[1] // num_bands)
    hashes = np.zeros(bands.shape[:2], dtype=np.uint64)
    for column in range(bands.shape[2]):
        hashes = (hashes ^ bands[:, :, column]) * MULTIPLIER
        hashes ^= hashes >> np.uint64(32)
    return hashes * MIX
