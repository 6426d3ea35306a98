"""Tokenizer folders that `AutoTokenizer` loads, and `Codec`, which converts raw text to ids and back.

`preparation.json` records how the training text was prepared, so that later text is prepared in the same way.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders

from course_lib.checkpoints import tokenizer_json
from course_lib.files import read_record, write_json
from course_lib.japanese import normalize, segment
from course_lib.japanese.segment import BROKEN_ESCAPE, NEWLINE, REPLACEMENTS, escape_spaces
from course_lib.subword.config import BEGIN, END, UNKNOWN

# sentencepiece's symbol for a space.
WORD = "▁"


@dataclass(frozen=True)
class Preparation:
    """How text is prepared before the tokenizer encodes it."""

    segmented: bool  # words are separated by spaces
    marked: bool  # original spaces are written as ␣ (japanese/segment.py), so that decoding can restore them


@dataclass(frozen=True)
class Codec:
    """Converter between raw text and ids."""

    tokenizer: Tokenizer
    preparation: Preparation

    def prepare(self, text: str) -> str:
        """Return the text normalized, and also segmented and with ␣ if the tokenizer was trained on such text."""
        text = normalize(text)
        if not self.preparation.segmented:
            return escape_spaces(text) if self.preparation.marked else text
        text = segment(text, self.preparation.marked)
        if not self.preparation.marked:
            return text
        # One line, with ␛n for each line break. The first word after it has a space before it, like any other word; the
        # ␛n has none, because sentencepiece would spend a token on it.
        first, *others = text.split("\n")
        return NEWLINE.join([first, *(f" {line}" if line else "" for line in others)])

    def encode(self, text: str) -> list[int]:
        """Return the token ids for raw text, without special tokens."""
        return list(self.tokenizer.encode(self.prepare(text), add_special_tokens=False).ids)

    def tokens(self, text: str) -> list[str]:
        """Return the tokens for raw text as strings, without special tokens."""
        return list(self.tokenizer.encode(self.prepare(text), add_special_tokens=False).tokens)

    def decode(self, ids: list[int]) -> str:
        """Return the text for `ids`: the normalized text if the tokenizer is lossless."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))


def load(folder: Path) -> Codec:
    """Load a tokenizer folder of the course as a Codec."""
    content = read_record(folder / "preparation.json", {"segmented": bool, "marked": bool})
    return Codec(tokenizer_json.load(folder), Preparation(content["segmented"], content["marked"]))


def save(tokenizer: Tokenizer, preparation: Preparation, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and preparation.json to an existing folder."""
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "preparation.json", asdict(preparation))
    config: dict[str, Any] = {
        "unk_token": UNKNOWN,
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": END,
        "tokenizer_class": "PreTrainedTokenizerFast",
        # When decoding, the transformers clean-up would remove spaces before punctuation.
        "clean_up_tokenization_spaces": False,
        "padding_side": "right",
        "model_max_length": 1024,
    }
    if not preparation.segmented:
        # Otherwise transformers would make the control token <s> of <s> in a text. Segmented text never has it.
        config["split_special_tokens"] = True
    write_json(folder / "tokenizer_config.json", config)


def lossless_decoder(byte_fallback: bool, word_symbol: str = "") -> Any:
    """Return a decoder that joins tokens and byte tokens and restores spaces, as `japanese.segment.restore_spaces`.

    A ␛ without its letter, because the text is cut or a model made a mistake, is dropped. `word_symbol` is
    sentencepiece's ▁ if the tokens contain it; it stands for a space added by the segmenter and is removed.
    """
    *others, escape = REPLACEMENTS
    replacements: list[tuple[Any, str]] = [(word_symbol, "")] if word_symbol else []
    replacements += [*others, (Regex(BROKEN_ESCAPE), ""), escape]
    steps: list[Any] = [decoders.ByteFallback()] if byte_fallback else []
    return decoders.Sequence([*steps, decoders.Fuse(), *(decoders.Replace(*pair) for pair in replacements)])
