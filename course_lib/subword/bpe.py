"""BPE with the `tokenizers` library, as the GPT-2 XL recipe trains it, in a lossless and in the recipe's own form.

The library does the training; this module feeds it, refuses what cannot come out well, and writes the folder.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from course_lib.errors import CourseError
from course_lib.files import atomic_folder, require_other
from course_lib.japanese.marks import ESCAPE, ESCAPES, MARK, mark
from course_lib.subword import folder, text
from course_lib.subword.config import SPECIALS, UNKNOWN, BpeConfig

BYTES = tuple(f"<0x{value:02X}>" for value in range(256))


def train_bpe(
    sources: Sequence[Path], target: Path, settings: BpeConfig | None = None, show_progress: bool = True
) -> dict[str, int]:
    """Trains on segmented .txt lines or JSONL documents and writes a tokenizer folder; returns its counts.

    The same text gives the same tokenizer. Of equally rare characters that limit_alphabet cuts between, those with the smaller
    code points stay.
    Raises CourseError for an empty or unreadable corpus, or a vocabulary it cannot fill or fit (saying what is possible).
    """
    settings = settings or BpeConfig()
    segmented = text.is_segmented(sources)
    for source in sources:
        require_other(source, target)
    with atomic_folder(target) as place:
        tokenizer = _train(sources, segmented, place, settings, show_progress)
        _check_size(tokenizer.get_vocab_size(), sources, settings)
        folder.save(tokenizer, folder.Preparation(segmented, settings.lossless), place)
    return {"vocabulary": tokenizer.get_vocab_size()}


def _check_size(size: int, sources: Sequence[Path], settings: BpeConfig) -> None:
    fixed = (
        len(SPECIALS) + (len(BYTES) if settings.byte_fallback else 0) + (1 + len(ESCAPES) if settings.lossless else 0)
    )
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


def _train(
    sources: Sequence[Path], segmented: bool, place: Path, settings: BpeConfig, show_progress: bool
) -> Tokenizer:
    marks = ESCAPES if settings.lossless else ()
    tokenizer = _with_whitespace(models.BPE(unk_token=UNKNOWN, byte_fallback=settings.byte_fallback))
    with text.as_lines(sources, segmented, place, mark if settings.lossless else str) as files, _small_heap():
        # The library would choose by chance between equally rare characters.
        given = (MARK, ESCAPE) if settings.lossless else ("", "")
        alphabet = text.alphabet(files, settings.limit_alphabet, *given)
        trainer = trainers.BpeTrainer(
            vocab_size=settings.vocab_size,
            min_frequency=settings.min_frequency,
            limit_alphabet=len(alphabet),
            initial_alphabet=alphabet,
            special_tokens=[*SPECIALS, *(BYTES if settings.byte_fallback else ()), *marks],
            show_progress=show_progress,
        )
        try:
            tokenizer.train([str(path) for path in files], trainer)
        except Exception as error:  # the library raises no narrower one
            raise CourseError(f"{', '.join(map(str, sources))}: tokenizers: {error}") from error
    # Bytes and marks were specials to get the first ids. In use the bytes are ordinary entries; the marks are found before
    # the text is divided into words, which would divide them too.
    tokenizer = _with_whitespace(tokenizer.model)
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in marks])
    if settings.lossless:
        tokenizer.decoder = folder.lossless_decoder(settings.byte_fallback)
    return tokenizer


@contextmanager
def _small_heap() -> Iterator[None]:
    """Lets glibc give large tables back as soon as they have grown into larger ones: a seventh less memory, no time.

    By default glibc does so until the first is freed, then keeps them. Afterwards it is as after a first one of 32 MB.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:  # not glibc
        yield
        return
    trim_threshold, mmap_threshold = -1, -3  # M_… in malloc.h
    set_option(mmap_threshold, 128 << 10)
    try:
        yield
    finally:
        set_option(mmap_threshold, 32 << 20)
        set_option(trim_threshold, 64 << 20)


def _with_whitespace(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer
