"""Products for chapter 3: BPE and Unigram tokenizers with and without segmentation, and the GPT-2 XL recipe's BPE;
a tokenizer for the profile's models, if it is another one: a BPE for the small world, or a Unigram within words.
"""

from functools import partial
from pathlib import Path
from typing import Any

from course_lib.corpus import products as corpus
from course_lib.japanese import products as japanese
from course_lib.subword.config import (
    BPE_SECTION,
    MODELS_SECTION,
    UNIGRAM_SECTION,
    WORLD_SECTION,
    BpeConfig,
    UnigramConfig,
)
from course_lib.workspace.products import Product

SEGMENTED = (japanese.WIKIPEDIA, japanese.WEBTEXT)
RAW = (corpus.WIKIPEDIA, corpus.WEBTEXT)
CODE = ("japanese", "subword")


def text_file(folder: Path) -> Path:
    """Return the file in a product of chapter 2 or 1: segmented lines, or documents."""
    lines = folder / japanese.LINES
    return lines if lines.exists() else folder / corpus.DOCUMENTS


def train(folder: Path, inputs: list[Path], settings: BpeConfig | UnigramConfig) -> dict[str, Any]:
    """Train a tokenizer on products of chapter 1 or 2, and return the counts for its manifest."""
    files = [text_file(path) for path in inputs]
    if isinstance(settings, BpeConfig):
        from course_lib.subword.bpe import train_bpe

        return train_bpe(files, folder, settings, show_progress=False)
    from course_lib.subword.unigram import train_unigram

    return train_unigram(files, folder, settings)


# Lossless, on segmented text.
BPE = Product("subword/bpe", build=train, settings=BPE_SECTION.read, inputs=SEGMENTED, code=CODE)
# Lossy, as in the GPT-2 XL recipe.
lossy_settings = partial(BPE_SECTION.read, ["lossless=false", "byte_fallback=false"])
BPE_RECIPE = Product("subword/bpe-recipe", build=train, settings=lossy_settings, inputs=SEGMENTED, code=CODE)
BPE_RAW = Product("subword/bpe-raw", build=train, settings=BPE_SECTION.read, inputs=RAW, code=CODE)
UNIGRAM = Product("subword/unigram", build=train, settings=UNIGRAM_SECTION.read, inputs=SEGMENTED, code=CODE)
UNIGRAM_RAW = Product("subword/unigram-raw", build=train, settings=UNIGRAM_SECTION.read, inputs=RAW, code=CODE)
# Of the small world, whose words it holds whole.
BPE_WORLD = Product("subword/bpe-world", build=train, settings=WORLD_SECTION.read, inputs=(japanese.WORLD,), code=CODE)


def _words_settings() -> UnigramConfig:
    size = MODELS_SECTION.read().vocab_size
    return UNIGRAM_SECTION.read(["within_words=true", *([f"vocab_size={size}"] if size else [])])


# Trained on the segmented texts that the profile's models learn, encodes unsegmented ones.
UNIGRAM_WORDS = Product(
    "subword/unigram-words",
    build=train,
    settings=_words_settings,
    inputs=japanese.texts,
    code=CODE,
)


def tokenizer() -> Product:
    """Return the tokenizer of chapter 4: that of the texts that the profile's models learn."""
    if MODELS_SECTION.read().tokenizer == "unigram-words":
        return UNIGRAM_WORDS
    return BPE_WORLD if corpus.has_world() else BPE


def texts() -> tuple[Product, ...]:
    """Return the texts that the profile's models learn, in the form that `tokenizer` encodes: segmented or not."""
    return corpus.texts() if tokenizer() == UNIGRAM_WORDS else japanese.texts()


def products() -> list[Product]:
    """Return the chapter's products for the current profile, in build order."""
    return list(dict.fromkeys([BPE, BPE_RECIPE, BPE_RAW, UNIGRAM, UNIGRAM_RAW, tokenizer()]))
