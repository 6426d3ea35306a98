"""Unigram tokenizers trained with `sentencepiece`: .model and .vocab files, and a Hugging Face folder.

The trained model is rebuilt with `tokenizers` from its pieces; both give the same ids.

There are three kinds: for segmented text, for raw text, and, with `within_words`, for raw text with entries that stay
within the words of a segmenter. The third kind is LLM-jp's (https://github.com/llm-jp/llm-jp-tokenizer): sentencepiece
finds its candidates in segmented lines, then weighs them in the text without boundaries (`pretokenization_delimiter`).
"""

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from course_lib.errors import CourseError
from course_lib.japanese import segment
from course_lib.japanese.marks import ESCAPES, MARK, unmark
from course_lib.subword import folder, text
from course_lib.subword.config import BEGIN, END, SPECIALS, UNKNOWN, UnigramConfig
from course_lib.subword.folder import WORD

# Scores: a piece with score NEVER is never chosen; a piece with score ALWAYS is chosen wherever possible.
NEVER, ALWAYS = -1e5, 1e5
# sentencepiece's mark for the boundaries and rare characters of its training text.
RESERVED = "▅ (U+2585)"
# Between two words of a training line with `within_words`; normalized text has no control characters.
BOUNDARY = "\x1f"
# Characters that are entries with `within_words`, even if the training text has none of them. As bytes, a space (▁) or
# an ideographic space would be three tokens. With ASCII, the names of control tokens can be spelled.
REQUIRED = "\n\u3000" + WORD + "".join(map(chr, range(ord("!"), ord("~") + 1)))
# Code points that no text has: https://www.unicode.org/faq/private_use.html#nonchar1
NO_CHARACTERS = range(0xFDD0, 0xFDF0)


def train_unigram(sources: Sequence[Path], target: Path, settings: UnigramConfig | None = None) -> dict[str, int]:
    """Train a tokenizer, write its .model, .vocab and Hugging Face files to a folder, and return its counts.

    The sources are segmented lines (.txt) or documents (.jsonl), which are segmented here if `within_words` is set.
    Raises CourseError, with the possible sizes, if vocab_size is too large or too small for the corpus.
    """
    settings = settings or UnigramConfig()
    model = io.BytesIO()
    with text.training(sources, target) as (segmented, product, work):
        line_of: Callable[[str], str] = str
        own: dict[str, Any] = {"required_chars": "", "user_defined_symbols": []}
        if settings.within_words:
            files = text.as_lines(sources, segmented, work, segment)
            line_of = with_boundaries
            own = {"required_chars": REQUIRED, "pretokenization_delimiter": BOUNDARY, "add_dummy_prefix": False}
        else:
            files = text.as_lines(sources, segmented, work)
            if segmented:
                own = {"required_chars": MARK, "user_defined_symbols": list(ESCAPES)}
        # Whether the text that the tokenizer encodes is segmented.
        segmented = segmented and not settings.within_words
        longer = Counter(len(line_of(line).encode()) > settings.max_sentence_length for line in text.lines(files))
        if all(line.isspace() for line in text.lines(files)):
            raise CourseError(f"{', '.join(map(str, sources))}: no text to train on")
        try:
            # sentencepiece would store file names in the model, and its own sampling selects different lines in every
            # run. It is therefore given an iterator over lines that are already sampled.
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=map(line_of, text.drawn(files, longer.total(), settings.input_sentence_size)),
                model_writer=model,
                model_type="unigram",
                vocab_size=settings.vocab_size,
                character_coverage=settings.character_coverage,
                byte_fallback=settings.byte_fallback,
                max_sentence_length=settings.max_sentence_length,
                num_threads=settings.threads,
                **own,
                # The text is already normalized as in chapter 2, and decoding must restore that text.
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
                unk_piece=UNKNOWN, bos_piece=BEGIN, eos_piece=END,
                # 2: errors only; a training writes 300 other lines.
                minloglevel=2,
            )  # fmt: skip
        except RuntimeError as error:
            lines = map(line_of, text.drawn(files, longer.total(), settings.input_sentence_size))
            raise CourseError(_explain(error, sources, settings, lines)) from None
        (product / "tokenizer.model").write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        count = processor.get_piece_size()
        names = (processor.id_to_piece(i).replace("\n", "\\n") for i in range(count))
        scores = (f"{name}\t{processor.get_score(i):g}\n" for i, name in enumerate(names))
        (product / "tokenizer.vocab").write_text("".join(scores), encoding="utf8", newline="\n")
        tokenizer = to_tokenizers(processor, segmented, settings.within_words)
        folder.save(tokenizer, folder.Preparation(segmented, marked=segmented), product)
    return {"vocabulary": count, "lines left out": longer[True]}


def with_boundaries(line: str) -> str:
    """Return a segmented line as plain text, its original spaces included, with BOUNDARY between its words."""
    return BOUNDARY.join(map(unmark, line.split(" ")))


def _explain(error: RuntimeError, sources: Sequence[Path], settings: UnigramConfig, lines: Iterable[str]) -> str:
    """Return sentencepiece's error message for training on lines as one line in this library's style."""
    message, names = " ".join(str(error).split()), ", ".join(map(str, sources))
    if high := re.search(r"value <= (\d+)", message):
        return f"vocab_size: {settings.vocab_size} is more than {names} supports; allowed: up to {high[1]}"
    if low := re.search(r"Vocabulary size is smaller than required_chars\. (\d+) vs (\d+)", message):
        return (
            f"vocab_size: {settings.vocab_size} is too small for the corpus's characters; "
            f"allowed: {int(low[2]) + 1} or more"
        )
    if "sentences_.empty()" in message:
        shortest, longest = min(len(line.encode()) for line in lines), settings.max_sentence_length
        if shortest > longest:
            return (
                f"max_sentence_length: {longest} leaves no line of {names}: the shortest one has {shortest} bytes; "
                f"allowed: {shortest} or more, or shorter lines"
            )
        # https://github.com/google/sentencepiece/blob/master/src/trainer_interface.cc, LoadSentences
        return f"{names}: no text to train on: sentencepiece leaves out lines with {RESERVED}, which it uses itself"
    return f"{names}: sentencepiece: {message}"


def to_tokenizers(processor: Any, segmented: bool, within_words: bool = False) -> Tokenizer:
    """Return a SentencePieceProcessor's Unigram model as a `tokenizers` Tokenizer with the same ids.

    `segmented` is whether it encodes segmented text, and `within_words` whether it was trained without a space before
    the text (`add_dummy_prefix`).
    """
    count = processor.get_piece_size()
    names = [processor.id_to_piece(i) for i in range(count)]
    byte_names = [name for i, name in enumerate(names) if processor.is_byte(i)]
    fallback = bool(byte_names)
    # Text that spells out <0x41> must not become that byte, and a mark must never be split. sentencepiece has rules for
    # both, but `tokenizers` does not, so the scores enforce them. Nor must <s> become that token: segmentation parts <
    # from s, but raw text can have it.
    fixed = dict.fromkeys(byte_names, NEVER)
    fixed |= dict.fromkeys(ESCAPES, ALWAYS) if segmented else dict.fromkeys(SPECIALS, NEVER)
    pieces = [(name, fixed.get(name, processor.get_score(i))) for i, name in enumerate(names)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=fallback))
    if within_words:
        # No split: encoding would remember a text by its words, and an unsegmented text is one word.
        metaspace = pre_tokenizers.Metaspace(replacement=WORD, prepend_scheme="never", split=False)
    else:
        metaspace = pre_tokenizers.Metaspace(replacement=WORD, prepend_scheme="first", split=True)
    tokenizer.pre_tokenizer = metaspace
    if segmented:
        tokenizer.add_special_tokens(list(SPECIALS))
        tokenizer.decoder = folder.lossless_decoder(fallback, WORD)
    else:
        if unknown := set("".join([*SPECIALS, *byte_names])) - set(names):
            _keep_apart(tokenizer, unknown, fallback)
        steps: list[Any] = [decoders.ByteFallback()] if fallback else []
        spaces: list[Any] = [decoders.Replace(WORD, " ")]
        if not within_words:
            spaces.append(decoders.Strip(content=" ", left=1, right=0))
        tokenizer.decoder = decoders.Sequence([*steps, decoders.Fuse(), *spaces])
    return tokenizer


def _keep_apart(tokenizer: Tokenizer, unknown: set[str], fallback: bool) -> None:
    """Keep characters that are in the names of control tokens, but no pieces, from completing a name in a text.

    `tokenizers` gives them a score below NEVER, so that it would choose <s> if < were no piece. The ids stay those of
    sentencepiece: of each such character, its bytes; without byte fallback, one <unk> for a run of unknown characters.
    """
    pattern = Regex(f"[{''.join(map(re.escape, sorted(unknown)))}]")
    if fallback:
        apart = pre_tokenizers.Split(pattern, "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([tokenizer.pre_tokenizer, apart])
    else:
        vocabulary = tokenizer.get_vocab()
        other = next(chr(code) for code in NO_CHARACTERS if chr(code) not in vocabulary)
        tokenizer.normalizer = normalizers.Replace(pattern, other)


def train_words(words: Mapping[str, int], entries: int) -> dict[str, float]:
    """Return {piece: log probability} of a Unigram model of words with frequencies, without ▁ and special tokens."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(word for word, frequency in words.items() for _ in range(frequency)),
        model_writer=model,
        model_type="unigram",
        vocab_size=entries + 1,
        character_coverage=1.0,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        num_threads=1,
        unk_id=0, bos_id=-1, eos_id=-1,
        minloglevel=2,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return {processor.id_to_piece(i): processor.get_score(i) for i in range(1, entries + 1)}
