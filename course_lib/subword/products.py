"""Products of chapter 3: each algorithm with and without segmentation, and BPE as in the GPT-2 XL recipe."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from course_lib import config
from course_lib.corpus.products import DOCUMENTS
from course_lib.japanese.products import LINES
from course_lib.product import Product
from course_lib.subword.config import BpeConfig, UnigramConfig

SEGMENTED = ("japanese/wikipedia", "japanese/webtext")
RAW = ("corpus/wikipedia", "corpus/webtext")


def products() -> list[Product]:
    """Return the products bpe, bpe-recipe, bpe-raw, unigram and unigram-raw.

    `bpe` is segmented and lossless; chapter 4 uses it. `bpe-recipe` is lossy, as in the GPT-2 XL recipe. `bpe-raw` and
    `unigram-raw` are trained on unsegmented text.
    """
    bpe = config.section("subword.bpe", BpeConfig)
    unigram = config.section("subword.unigram", UnigramConfig)
    return [
        _step("bpe", bpe, SEGMENTED),
        _step("bpe-recipe", replace(bpe, lossless=False, byte_fallback=False), SEGMENTED),
        _step("bpe-raw", bpe, RAW),
        _step("unigram", unigram, SEGMENTED),
        _step("unigram-raw", unigram, RAW),
    ]


def _step(name: str, settings: BpeConfig | UnigramConfig, inputs: tuple[str, ...]) -> Product:
    return Product(f"subword/{name}", partial(_train, settings), settings, inputs, ("japanese", "subword"))


def _train(settings: BpeConfig | UnigramConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    files = [path / (LINES if (path / LINES).exists() else DOCUMENTS) for path in inputs]
    if isinstance(settings, BpeConfig):
        from course_lib.subword.bpe import train_bpe

        return train_bpe(files, folder, settings, show_progress=False)
    from course_lib.subword.unigram import train_unigram

    return train_unigram(files, folder, settings)
