"""BPE with the `tokenizers` library, as the GPT-2 XL recipe trains it, in a lossless and in the recipe's own form.

The library does the training; this module feeds it, refuses what cannot come out well, and writes the folder.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from course_lib.errors import CourseError
from course_lib.files import atomic_folder
from course_lib.japanese.marks import ESCAPE, MARK, mark
from course_lib.subword import folder, text
from course_lib.subword.config import SPECIALS, UNKNOWN, BpeConfig

BYTES = tuple(f"<0x{value:02X}>" for value in range(256))


def train_bpe(
    sources: Sequence[Path], target: Path, settings: BpeConfig | None = None, show_progress: bool = True
) -> dict[str, int]:
    """Trains on segmented .txt lines or JSONL documents and writes a tokenizer folder; returns its counts.

    Raises CourseError for an empty or unreadable corpus, or one too small for the vocabulary (saying what is possible).
    """
    settings = settings or BpeConfig()
    segmented = text.is_segmented(sources)
    tokenizer = _train(sources, segmented, settings, show_progress)
    size = tokenizer.get_vocab_size()
    if size <= len(SPECIALS) + 256 * settings.byte_fallback + 2:
        raise CourseError(f"{', '.join(map(str, sources))}: no text to train on")
    if size < settings.vocab_size:
        raise CourseError(
            f"vocab_size: {settings.vocab_size} is more than this corpus supports: it yields {size} entries at "
            f"min_frequency {settings.min_frequency}; allowed: up to {size}"
        )
    with atomic_folder(target) as place:
        folder.save(tokenizer, folder.Preparation(segmented, settings.lossless), place)
    return {"vocabulary": size, "merges": len(json.loads(tokenizer.to_str())["model"]["merges"])}


def _train(sources: Sequence[Path], segmented: bool, settings: BpeConfig, show_progress: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, byte_fallback=settings.byte_fallback))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_frequency,
        limit_alphabet=settings.limit_alphabet,
        initial_alphabet=[MARK, ESCAPE] if settings.lossless else [],
        special_tokens=[*SPECIALS, *(BYTES if settings.byte_fallback else ())],
        show_progress=show_progress,
    )
    if segmented:
        tokenizer.train([str(path) for path in sources], trainer)
    else:
        lines = text.sentences(sources)
        tokenizer.train_from_iterator(map(mark, lines) if settings.lossless else lines, trainer)
    return _finish(tokenizer, settings)


def _finish(tokenizer: Tokenizer, settings: BpeConfig) -> Tokenizer:
    """Byte tokens are made by the trainer as specials, to get their ids; in use they are ordinary entries."""
    description: dict[str, Any] = json.loads(tokenizer.to_str())
    description["added_tokens"] = [token for token in description["added_tokens"] if token["content"] in SPECIALS]
    tokenizer = Tokenizer.from_str(json.dumps(description))
    if settings.lossless:
        tokenizer.decoder = folder.lossless_decoder(settings.byte_fallback)
    return tokenizer
