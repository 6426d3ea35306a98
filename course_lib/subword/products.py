"""Products for chapter 3: BPE and Unigram tokenizers with and without segmentation, and the GPT-2 XL recipe's BPE."""

from functools import partial
from pathlib import Path
from typing import Any

from course_lib.corpus import products as corpus
from course_lib.japanese import products as japanese
from course_lib.settings import config
from course_lib.subword.config import BpeConfig, UnigramConfig
from course_lib.workspace.products import Definition, Product, product

SEGMENTED = (japanese.WIKIPEDIA, japanese.WEBTEXT)
RAW = (corpus.WIKIPEDIA, corpus.WEBTEXT)


def products() -> list[Product]:
    """Return the chapter's products, in build order."""
    return [BPE, BPE_RECIPE, BPE_RAW, UNIGRAM, UNIGRAM_RAW]


@product("subword/bpe")
def BPE() -> Definition:
    """The lossless BPE tokenizer trained on segmented text, which chapter 4 uses."""
    return _trained(config.section("subword.bpe", BpeConfig), SEGMENTED)


@product("subword/bpe-recipe")
def BPE_RECIPE() -> Definition:
    """The lossy BPE tokenizer trained on segmented text, as in the GPT-2 XL recipe."""
    return _trained(config.section("subword.bpe", BpeConfig, ["lossless=false", "byte_fallback=false"]), SEGMENTED)


@product("subword/bpe-raw")
def BPE_RAW() -> Definition:
    """The BPE tokenizer trained on unsegmented text."""
    return _trained(config.section("subword.bpe", BpeConfig), RAW)


@product("subword/unigram")
def UNIGRAM() -> Definition:
    """The Unigram tokenizer trained on segmented text."""
    return _trained(config.section("subword.unigram", UnigramConfig), SEGMENTED)


@product("subword/unigram-raw")
def UNIGRAM_RAW() -> Definition:
    """The Unigram tokenizer trained on unsegmented text."""
    return _trained(config.section("subword.unigram", UnigramConfig), RAW)


def _trained(settings: BpeConfig | UnigramConfig, texts: tuple[Product, ...]) -> Definition:
    return Definition(partial(_train, settings), settings, texts, ("japanese", "subword"))


def _train(settings: BpeConfig | UnigramConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    files = [path / (japanese.LINES if (path / japanese.LINES).exists() else corpus.DOCUMENTS) for path in inputs]
    if isinstance(settings, BpeConfig):
        from course_lib.subword.bpe import train_bpe

        return train_bpe(files, folder, settings, show_progress=False)
    from course_lib.subword.unigram import train_unigram

    return train_unigram(files, folder, settings)
