"""Unigram (or BPE) with `sentencepiece`: its own .model and .vocab, and the same model as a Hugging Face folder.

sentencepiece does the training; this module streams the text to it and rebuilds the result from the model's own pieces with `tokenizers`,
which tests compare id by id.
"""

import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from course_lib.errors import CourseError
from course_lib.files import atomic_folder, require_other
from course_lib.japanese.marks import ESCAPE, ESCAPES, MARK
from course_lib.subword import folder, text
from course_lib.subword.config import BEGIN, END, UNKNOWN, UnigramConfig
from course_lib.subword.folder import WORD

NEVER, ALWAYS = -1e5, 1e5  # scores: no split with this piece wins; each split that can has it
NAME = "tokenizer"  # tokenizer.model, tokenizer.vocab


def train_unigram(sources: Sequence[Path], target: Path, settings: UnigramConfig | None = None) -> dict[str, int]:
    """Trains on segmented .txt lines or JSONL documents and writes .model, .vocab and a tokenizer folder; returns its counts.

    Raises CourseError for an empty or unreadable corpus, or one too small for the vocabulary (saying what is possible).
    """
    settings = settings or UnigramConfig()
    segmented = text.is_segmented(sources)
    for source in sources:
        require_other(source, target)
    with atomic_folder(target) as place:
        left_out = _train(sources, segmented, place, settings)
        processor = sentencepiece.SentencePieceProcessor(model_file=str(place / f"{NAME}.model"))
        tokenizer = to_tokenizers(processor, settings.model_type, segmented)
        folder.save(tokenizer, folder.Preparation(segmented, marked=segmented), place)
        return {"vocabulary": processor.get_piece_size(), "lines left out": left_out}


def _train(sources: Sequence[Path], segmented: bool, place: Path, settings: UnigramConfig) -> int:
    """Writes .model and .vocab; returns how many lines were too long for sentencepiece, which leaves them out without a word."""
    model = io.BytesIO()
    with text.as_lines(sources, segmented, place) as files:
        lines, left_out = text.check_lines(files, settings.max_sentence_length)
        try:
            # Neither file names, which sentencepiece would keep in the model, nor its own sample, which is another each time.
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=text.drawn(files, lines, settings.input_sentence_size),
                model_writer=model,
                model_type=settings.model_type,
                vocab_size=settings.vocab_size,
                character_coverage=settings.character_coverage,
                byte_fallback=settings.byte_fallback,
                max_sentence_length=settings.max_sentence_length,
                num_threads=settings.threads,
                required_chars=_required(settings.model_type) if segmented else "",
                user_defined_symbols=list(ESCAPES) if segmented else [],
                normalization_rule_name="identity",  # chapter 2 normalized the text; what goes in must come out
                remove_extra_whitespaces=False,
                unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
                unk_piece=UNKNOWN, bos_piece=BEGIN, eos_piece=END,
                minloglevel=0 if sys.stderr.isatty() else 2,  # sentencepiece's own progress, where somebody watches
            )  # fmt: skip
        except RuntimeError as error:
            raise CourseError(_explain(error, sources, settings)) from None
    (place / f"{NAME}.model").write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = (f"{processor.id_to_piece(i)}\t{processor.get_score(i):g}\n" for i in range(processor.get_piece_size()))
    (place / f"{NAME}.vocab").write_text("".join(pieces), encoding="utf8", newline="\n")
    return left_out


def _required(model_type: str) -> str:
    """Characters with an entry of their own. In BPE ␛ has one too: `tokenizers` makes ␛n by a merge, and a merge needs both."""
    return MARK + (ESCAPE + "".join(token[1] for token in ESCAPES) if model_type == "bpe" else "")


def _explain(error: RuntimeError, sources: Sequence[Path], settings: UnigramConfig) -> str:
    """sentencepiece's complaint as a line of ours."""
    message = " ".join(str(error).split())
    names = ", ".join(map(str, sources))
    if high := re.search(r"value <= (\d+)", message):
        return f"vocab_size: {settings.vocab_size} is more than {names} supports; allowed: up to {high[1]}"
    if low := re.search(r"Vocabulary size is smaller than required_chars\. (\d+) vs (\d+)", message):
        return f"vocab_size: {settings.vocab_size} is too small for the corpus's characters; allowed: {int(low[2]) + 1} or more"
    if "sentences_.empty()" in message or "Input corpus is empty" in message or "!sentences" in message:
        return f"{names}: no text to train on"
    return f"{names}: sentencepiece: {message}"


def to_tokenizers(processor: Any, model_type: str, segmented: bool) -> Tokenizer:
    """The model of a SentencePieceProcessor as a `tokenizers` Tokenizer with the same ids.

    With `segmented` its decoder drops the spaces between words and undoes the marks; without, it gives spaces back as they were.
    """
    count = processor.get_piece_size()
    is_byte = [processor.is_byte(i) for i in range(count)]
    # A text that spells out <0x41> must not become the byte, and a mark is never divided: sentencepiece has rules for both,
    # here scores do it.
    fixed = dict.fromkeys(ESCAPES, ALWAYS) if segmented else {}
    pieces = [
        (piece, NEVER if is_byte[i] else fixed.get(piece, processor.get_score(i)))
        for i, piece in enumerate(map(processor.id_to_piece, range(count)))
    ]
    fallback = any(is_byte)
    model = (
        models.Unigram(pieces, unk_id=0, byte_fallback=fallback) if model_type == "unigram" else _bpe(pieces, fallback)
    )
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens([UNKNOWN, BEGIN, END])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=WORD, prepend_scheme="first", split=True)
    if segmented:
        tokenizer.decoder = folder.lossless_decoder(fallback, WORD)
    else:
        steps = [decoders.ByteFallback()] if fallback else []
        tokenizer.decoder = decoders.Sequence(
            [*steps, decoders.Fuse(), decoders.Replace(WORD, " "), decoders.Strip(content=" ", left=1, right=0)]
        )
    return tokenizer


def _bpe(pieces: list[tuple[str, float]], fallback: bool) -> Any:
    """sentencepiece keeps no merges: a pair may merge if its whole is a piece, and earlier pieces (higher scores) merge first."""
    ids = {piece: i for i, (piece, _) in enumerate(pieces)}
    merges = []
    for piece, score in pieces:
        if score == NEVER:
            continue
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in ids and piece[i:] in ids]
        merges += [(score, ids[left], ids[right], left, right) for left, right in pairs]
    merges.sort(key=lambda merge: (-merge[0], merge[1], merge[2]))
    return models.BPE(
        ids, [(left, right) for *_, left, right in merges], unk_token=UNKNOWN, fuse_unk=True, byte_fallback=fallback
    )
