"""BPE tokenizers trained with `tokenizers`: lossless, or lossy as in the GPT-2 XL recipe (configs/xl.yaml)."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from course_lib.errors import CourseError
from course_lib.japanese.segment import ESCAPE, ESCAPES, SPACE, escape_spaces
from course_lib.subword import folder, text
from course_lib.subword.config import SPECIALS, UNKNOWN, BpeConfig

BYTES = tuple(f"<0x{value:02X}>" for value in range(256))


def train_bpe(
    sources: Sequence[Path], target: Path, settings: BpeConfig | None = None, show_progress: bool = True
) -> dict[str, int]:
    """Train a BPE tokenizer, write its folder, and return its counts: {"vocabulary": number of entries}.

    The sources are segmented lines (.txt) or documents (.jsonl). The same text always gives the same tokenizer. Raises
    CourseError, with the possible sizes, if vocab_size is too large or too small for the corpus.
    """
    settings = settings or BpeConfig()
    first = [*SPECIALS, *(BYTES if settings.byte_fallback else ()), *(ESCAPES if settings.lossless else ())]
    with text.training(sources, target) as (segmented, product, work):
        files = text.as_lines(sources, segmented, work, escape_spaces if settings.lossless else str)
        files = text.sample(files, settings.input_sentence_size, work)
        # The alphabet is chosen here, because the library chooses randomly among equally rare characters.
        always, never = (SPACE, ESCAPE) if settings.lossless else ("", "")
        alphabet = text.alphabet(files, settings.limit_alphabet, always, never)
        trainer = trainers.BpeTrainer(
            vocab_size=settings.vocab_size,
            min_frequency=settings.min_frequency,
            limit_alphabet=len(alphabet),
            initial_alphabet=alphabet,
            special_tokens=first,
            show_progress=show_progress,
        )
        tokenizer = _with_whitespace(models.BPE(unk_token=UNKNOWN, byte_fallback=settings.byte_fallback))
        tokenizer.train([str(path) for path in files], trainer)
        # During training, byte tokens and escapes (␛n) were special tokens, so that they got the first ids. From here
        # on, byte tokens are ordinary entries, and escapes are added tokens, which are matched before the pre-tokenizer
        # can split them.
        tokenizer = _with_whitespace(tokenizer.model)
        if segmented or not settings.lossless:
            tokenizer.add_special_tokens(list(SPECIALS))
        # Otherwise special tokens are entries, but no added tokens, whose names `tokenizers` would find in a text. The
        # pre-tokenizer parts < from s, so the model does not join them either.
        if settings.lossless:
            tokenizer.add_tokens([AddedToken(token, normalized=False) for token in ESCAPES])
            tokenizer.decoder = folder.lossless_decoder(settings.byte_fallback)
        _check_size(tokenizer.get_vocab_size(), len(first) + len(always), sources, settings)
        folder.save(tokenizer, folder.Preparation(segmented, settings.lossless), product)
    return {"vocabulary": tokenizer.get_vocab_size()}


def _check_size(size: int, fixed: int, sources: Sequence[Path], settings: BpeConfig) -> None:
    """Raise CourseError unless the vocabulary has the size of the settings; `fixed` entries need no text."""
    names = ", ".join(map(str, sources))
    if size <= fixed:
        raise CourseError(f"{names}: no text to train on")
    if size < settings.vocab_size:
        raise CourseError(
            f"vocab_size: {settings.vocab_size} is more than {names} supports "
            f"at min_frequency {settings.min_frequency}; allowed: up to {size}"
        )
    if size > settings.vocab_size:
        raise CourseError(
            f"vocab_size: {settings.vocab_size} is too small for the special tokens, the byte tokens and "
            f"{size - fixed} characters; allowed: {size} or more, or a smaller limit_alphabet"
        )


def _with_whitespace(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer
