"""Bits per character and per byte of raw text, and perplexity per token.

A model's probability of a document, divided over the document's raw characters, can be compared between tokenizers,
segmenters and models; perplexity per token cannot, because tokens have different lengths (Cotterell et al. 2018,
https://aclanthology.org/N18-2085; Gao et al. 2020, https://arxiv.org/abs/2101.00027, section 3.1). What is counted:

- Documents are raw. Normalization and segmentation happen inside the model's own tokenizer.
- Line breaks are removed first and not counted: a model pretrained on `course segment`'s lines has not learned where a
  paragraph ends, and the breaks alone would cost the tiny GPT-2 a twentieth of its bits.
- A document's bits are those of all its tokens and of the token that ends it.
- The denominators are the raw text's characters (Unicode code points) and UTF-8 bytes, with those that normalization or
  the tokenizer replaces (for fewer bits) or deletes (for none). `lost` is their share: raw characters that the scored
  tokens do not decode to, as a difference of multisets. Compare models only where `lost` is about equal.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from course_lib.errors import CourseError
from course_lib.evaluation.scoring import ScoringModel, one_line
from course_lib.evaluation.windows import WindowSettings, score
from course_lib.language.columns import padded
from course_lib.language.words import tr

# Documents that are in memory at a time.
AT_ONCE = 256


@dataclass(frozen=True)
class Bits:
    """What documents cost under one model."""

    documents: int
    characters: int  # of the raw text
    bytes: int  # of the raw text in UTF-8
    tokens: int  # end tokens included
    bits: float  # end tokens included
    lost_characters: int  # raw characters that the scored tokens do not decode to

    @property
    def bits_per_character(self) -> float:
        """Bits per character of the raw text."""
        return self.bits / self.characters

    @property
    def bits_per_byte(self) -> float:
        """Bits per UTF-8 byte of the raw text."""
        return self.bits / self.bytes

    @property
    def perplexity_per_token(self) -> float:
        """2 to the power of the bits per token; comparable only between models with the same tokenizer."""
        return float(2 ** (self.bits / self.tokens))

    @property
    def characters_per_token(self) -> float:
        """Characters of the raw text per token."""
        return self.characters / self.tokens

    @property
    def lost(self) -> float:
        """Share of the raw characters that the scored tokens do not decode to."""
        return self.lost_characters / self.characters

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, for JSON."""
        names = ("bits_per_character", "bits_per_byte", "perplexity_per_token", "characters_per_token", "lost")
        return vars(self) | {name: getattr(self, name) for name in names}


def bits(model: ScoringModel, texts: Iterable[str], settings: WindowSettings | None = None, bar: Any = None) -> Bits:
    """Return what raw documents, AT_ONCE of them at a time, cost under a model; `bar` is advanced by characters."""
    documents = characters = size = tokens = lost = 0
    nats = 0.0
    remaining = map(one_line, texts)
    while part := list(islice(remaining, AT_ONCE)):
        sequences = [model.tokens(text, end=True) for text in part]
        nats -= math.fsum(scores.total for scores in score(model, sequences, settings, bar, sum(map(len, part))))
        documents += len(part)
        characters += sum(map(len, part))
        size += sum(len(text.encode("utf8", "surrogatepass")) for text in part)
        tokens += sum(len(sequence.target) for sequence in sequences)
        pairs = zip(part, sequences, strict=True)
        lost += sum((Counter(text) - Counter(sequence.text)).total() for text, sequence in pairs)
    if not characters:
        raise CourseError("documents: no text to evaluate")
    return Bits(documents, characters, size, tokens, nats / math.log(2), lost)


def table(rows: Sequence[tuple[str, Bits]]) -> str:
    """Return (model name, figures) as a text table with one line per model."""
    width = max(len("model"), *(len(name) for name, _ in rows)) + 2
    lines = [
        padded(tr("model"), f"<{width}") + padded(tr("bits/char"), ">10") + padded(tr("bits/byte"), ">10")
        + padded(tr("ppl/token"), ">11") + padded(tr("chars/token"), ">12") + padded(tr("lost"), ">8")
    ]  # fmt: skip
    lines += [
        f"{padded(name, f'<{width}')}{row.bits_per_character:>10.3f}{row.bits_per_byte:>10.3f}"
        f"{row.perplexity_per_token:>11.1f}{row.characters_per_token:>12.2f}{row.lost:>8.2%}"
        for name, row in rows
    ]
    return "\n".join(lines)
