"""A tokenizer as a folder that `AutoTokenizer` loads, and as a codec from raw text to ids and back.

Besides the files transformers reads, `preparation.json` says what was done to the training text, so that whoever encodes later does the
same. Nothing here imports transformers: the files are plain JSON.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers

from course_lib.errors import CourseError
from course_lib.japanese.marks import CUT, NEWLINE, REPLACEMENTS, mark
from course_lib.subword.config import BEGIN, END, UNKNOWN

WORD = "▁"  # how sentencepiece writes a space


@dataclass(frozen=True)
class Preparation:
    """What happens to a text before the tokenizer sees it."""

    segmented: bool  # words separated by spaces
    marked: bool  # original spaces written as ␣ (marks.py), so that decoding can tell them


@dataclass(frozen=True)
class Codec:
    """Raw text → ids → text, with the preparation the tokenizer was trained on."""

    tokenizer: Tokenizer
    preparation: Preparation

    def prepare(self, text: str) -> str:
        """Returns the text normalized, then segmented and marked if the tokenizer expects that.

        Marked text is one line. A line break is ␛n and nothing else: in segmented text the next line's first word has a space
        before it like any other word, the ␛n has none, because sentencepiece would spend a token on that space.
        """
        # Training needs neither; they cost a megabyte.
        from course_lib.japanese import normalize, segment

        text = normalize(text)
        if not self.preparation.segmented:
            return mark(text) if self.preparation.marked else text
        text = segment(text, self.preparation.marked)
        if not self.preparation.marked:
            return text
        first, *others = text.split("\n")
        return NEWLINE.join([first, *(f" {line}" if line else "" for line in others)])

    def encode(self, text: str) -> list[int]:
        """Token ids of a raw text, without specials."""
        return list(self.tokenizer.encode(self.prepare(text), add_special_tokens=False).ids)

    def tokens(self, text: str) -> list[str]:
        """The same as token strings."""
        return list(self.tokenizer.encode(self.prepare(text), add_special_tokens=False).tokens)

    def decode(self, ids: list[int]) -> str:
        """The text of ids; the normalized text again if the tokenizer is lossless.

        The text of the first ids of a text is its beginning: a mark that is cut in two is not shown.
        """
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))


def load(folder: Path) -> Codec:
    """The codec of a tokenizer folder. Raises CourseError if it is none of ours."""
    try:
        preparation = Preparation(**json.loads((folder / "preparation.json").read_text(encoding="utf8")))
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library's own error class is Exception itself
        raise CourseError(f"{folder}: not a tokenizer folder of the course: {error}") from error
    if preparation.marked:
        # A decoder stored by an earlier version shows marks that are cut in two.
        byte_fallback = tokenizer.token_to_id("<0x00>") is not None
        word_mark = WORD if isinstance(tokenizer.pre_tokenizer, pre_tokenizers.Metaspace) else ""
        tokenizer.decoder = lossless_decoder(byte_fallback, word_mark)
    return Codec(tokenizer, preparation)


def save(tokenizer: Tokenizer, preparation: Preparation, folder: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and preparation.json into an existing folder."""
    config: dict[str, Any] = {
        "unk_token": UNKNOWN,
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": END,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,  # else decoding eats spaces before punctuation
        "padding_side": "right",
        "model_max_length": 1024,
    }
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in {"tokenizer_config.json": config, "preparation.json": asdict(preparation)}.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf8")


def lossless_decoder(byte_fallback: bool, word_mark: str = "") -> Any:
    """A decoder that gives the text before segmentation: fuse the tokens, then undo the marks in the order of marks.unmark.

    A ␛ without its letter, where a text is cut or a model made a mistake, is dropped before ␛e becomes the ␛ of a text.
    `word_mark` is sentencepiece's ▁ where tokens carry one: it stands for the segmenter's space, and goes.
    """
    *others, escape = REPLACEMENTS
    replacements: list[tuple[Any, str]] = [*([(word_mark, "")] if word_mark else []), *others, (Regex(CUT), ""), escape]
    steps: list[Any] = [decoders.ByteFallback()] if byte_fallback else []
    return decoders.Sequence([*steps, decoders.Fuse(), *(decoders.Replace(*pair) for pair in replacements)])
