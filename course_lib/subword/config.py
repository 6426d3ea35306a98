"""Settings for chapter 3: one class per trainer, and the special tokens that both trainers use."""

from typing import Literal

from pydantic.dataclasses import dataclass

from course_lib.settings.config import STRICT, Section, setting

# These tokens have the ids 0, 1 and 2 in every tokenizer trained here. </s> is also the padding token.
UNKNOWN, BEGIN, END = SPECIALS = ("<unk>", "<s>", "</s>")


@dataclass(frozen=True, config=STRICT)
class BpeConfig:
    """Settings for BPE with `tokenizers`, with the pre-tokenizer and token order of the GPT-2 XL recipe."""

    vocab_size: int = setting(50_000, "number of entries, with special and byte tokens", ge=3, le=2_000_000)
    min_frequency: int = setting(1, "number of times a pair must occur to be merged", ge=1, le=10**9)
    limit_alphabet: int = setting(8_000, "number of single characters kept, most frequent first", ge=1, le=0x110000)
    lossless: bool = setting(True, "decoding restores the text; false: it gives words separated by spaces")
    byte_fallback: bool = setting(True, "encode characters outside the alphabet as bytes (256 entries), not as <unk>")
    input_sentence_size: int = setting(0, "lines sampled for training, always the same ones; 0: all", ge=0, le=10**9)


@dataclass(frozen=True, config=STRICT)
class UnigramConfig:
    """Settings for Unigram training with `sentencepiece`."""

    vocab_size: int = setting(32_000, "number of entries, with special and byte tokens", ge=3, le=2_000_000)
    character_coverage: float = setting(0.9995, "share of the text's characters that entries cover", ge=0.98, le=1)
    byte_fallback: bool = setting(True, "encode all other characters as bytes (256 entries), not as <unk>")
    max_sentence_length: int = setting(16_384, "longest line used for training [bytes]", ge=10, le=10**9)
    input_sentence_size: int = setting(0, "lines sampled for training, always the same ones; 0: all", ge=0, le=10**9)
    threads: int = setting(2, "threads for training; the last digits of the scores depend on them", ge=1, le=1024)
    within_words: bool = setting(
        False, "keep entries within words, for which only the training needs a segmenter; text is encoded unsegmented"
    )


@dataclass(frozen=True, config=STRICT)
class ModelsConfig:
    """Settings that choose the tokenizer of the profile's models."""

    tokenizer: Literal["bpe", "unigram-words"] = setting(
        "bpe", "bpe: segmented, lossless; unigram-words: trained with `within_words`, encodes unsegmented text"
    )
    vocab_size: int | None = setting(
        None, "unigram-words: number of entries; unset: that of subword.unigram", ge=3, le=2_000_000
    )


# The chapter's sections of a profile.
BPE_SECTION = Section("subword.bpe", BpeConfig)
UNIGRAM_SECTION = Section("subword.unigram", UnigramConfig)
WORLD_SECTION = Section("subword.world", BpeConfig)
MODELS_SECTION = Section("subword.models", ModelsConfig)
