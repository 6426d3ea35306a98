"""BPE with the `tokenizers` library, as the GPT-2 XL recipe trains it, in a lossless and in the recipe's own form.

The library does the training; this module feeds it, refuses what cannot come out well, and writes the folder.
"""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from course_lib.errors import CourseError
from course_lib.files import atomic_folder, require_other
from course_lib.japanese.marks import ESCAPE, MARK, mark
from course_lib.subword import folder, text
from course_lib.subword.config import SPECIALS, UNKNOWN, BpeConfig

BYTES = tuple(f"<0x{value:02X}>" for value in range(256))


def train_bpe(
    sources: Sequence[Path], target: Path, settings: BpeConfig | None = None, show_progress: bool = True
) -> dict[str, int]:
    """Trains on segmented .txt lines or JSONL documents and writes a tokenizer folder; returns its counts.

    The result is the same every time unless limit_alphabet cuts: which of equally rare characters stay is then the library's chance.
    Raises CourseError for an empty or unreadable corpus, or a vocabulary it cannot fill or fit (saying what is possible).
    """
    settings = settings or BpeConfig()
    segmented = text.is_segmented(sources)
    for source in sources:
        require_other(source, target)
    with atomic_folder(target) as place:
        tokenizer = _train(sources, segmented, settings, show_progress)
        _check_size(tokenizer.get_vocab_size(), sources, settings)
        folder.save(tokenizer, folder.Preparation(segmented, settings.lossless), place)
    return {"vocabulary": tokenizer.get_vocab_size()}


def _check_size(size: int, sources: Sequence[Path], settings: BpeConfig) -> None:
    fixed = len(SPECIALS) + (len(BYTES) if settings.byte_fallback else 0) + (2 if settings.lossless else 0)
    names = ", ".join(map(str, sources))
    if size <= fixed:
        raise CourseError(f"{names}: no text to train on")
    if size < settings.vocab_size:
        raise CourseError(
            f"vocab_size: {settings.vocab_size} is more than {names} supports at min_frequency {settings.min_frequency}; "
            f"allowed: up to {size}"
        )
    if size > settings.vocab_size:
        raise CourseError(
            f"vocab_size: {settings.vocab_size} is too small for specials, bytes and {size - fixed} characters; allowed: {size} or "
            "more, or a smaller limit_alphabet"
        )


def _train(sources: Sequence[Path], segmented: bool, settings: BpeConfig, show_progress: bool) -> Tokenizer:
    tokenizer = _with_whitespace(models.BPE(unk_token=UNKNOWN, byte_fallback=settings.byte_fallback))
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_frequency,
        limit_alphabet=settings.limit_alphabet,
        initial_alphabet=[MARK, ESCAPE] if settings.lossless else [],
        special_tokens=[*SPECIALS, *(BYTES if settings.byte_fallback else ())],
        show_progress=show_progress,
    )
    if segmented:
        try:
            tokenizer.train([str(path) for path in sources], trainer)
        except Exception as error:  # the library raises no narrower one
            text.check_lines(sources)  # names a line that is not UTF-8
            raise CourseError(f"{', '.join(map(str, sources))}: tokenizers: {error}") from error
    else:
        lines = text.sentences(sources)
        tokenizer.train_from_iterator(map(mark, lines) if settings.lossless else lines, trainer)
    if settings.byte_fallback:  # the byte tokens were specials to get the first ids; in use they are ordinary entries
        tokenizer = _with_whitespace(tokenizer.model)
        tokenizer.add_special_tokens(list(SPECIALS))
    if settings.lossless:
        tokenizer.decoder = folder.lossless_decoder(settings.byte_fallback)
    return tokenizer


def _with_whitespace(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer
