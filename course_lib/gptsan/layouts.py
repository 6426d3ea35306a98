"""What GPTSAN learns from: examples of token ids in the modes lm, mlm and hybrid. Pure functions; files are encode.py's.

    x   SOT [line SEP] encoder part SEG decoder part EOT NOT …      cut to the context
    y   what each position predicts (shifted already), -1 where nothing is learned

The modes differ in the length of the encoder part only: none, all that fits, or random. It is raw text with masks; the decoder part
is cleaned, its sentence ends read as SEP (yet predicted as they are) and its runs of three or more equal tokens are token and BAG.
Layouts of tools/make_tfrecord_simple.py in tanreinama/GPTSAN; `original_layout` gives its examples to the last id.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np

from course_lib.gptsan.encode_config import EncodeConfig
from course_lib.gptsan.swe import NAMED

IGNORE = -1  # in y: nothing is learned here
ENDS = "。｡．.？！?!:：;；"
RUN = 3  # equal tokens in a row that become token and BAG
MASKED, RANDOM = 0.8, 0.5  # share of chosen tokens that become MSK, and of the others that become any token


class Encoding(Protocol):
    """What is needed of swe.SubwordEncoding, besides the ids of its named tokens as attributes."""

    def encode_text(self, text: str, clean: bool = False) -> list[int]:
        """The ids of a text, without special tokens around it."""


@dataclass(frozen=True)
class Marks:
    """Ids with a meaning for the layouts."""

    sot: int
    msk: int
    sep: int
    nottoken: int
    bag: int
    seg: int
    eot: int
    newline: int
    last: int  # the last one before the byte tokens
    ends: frozenset[int]  # sentence ends

    @classmethod
    def of(cls, encoding: Encoding, original: bool = False) -> "Marks":
        """The marks of an encoding. A sentence end without a token of its own is none; the original took each of its bytes for one."""
        codes = [encoding.encode_text(end) for end in ENDS]
        ends = frozenset(token for code in codes if original or len(code) == 1 for token in code)
        (newline,), (byte0,) = encoding.encode_text("\n"), encoding.encode_text("<|byte0|>")
        named = {name: getattr(encoding, name) for name in NAMED}
        return cls(**named, newline=newline, last=byte0 - 1, ends=ends)


@dataclass(frozen=True)
class Example:
    """One example: `num_input` counts the positions before SEG, which see each other."""

    x: list[int]
    y: list[int]
    num_input: int


def decoder_part(ids: Sequence[int], marks: Marks) -> tuple[list[int], list[int]]:
    """What is read and what is predicted of the ids of a cleaned line. Of what is predicted it gives the same again."""
    predicted: list[int] = []
    for token, run in groupby(ids):
        count = len(list(run))
        predicted += [token, marks.bag] if count >= RUN and token <= marks.last else [token] * count
    return [marks.sep if token in marks.ends else token for token in predicted], predicted


def encoder_length(mode: str, context: int, before: int, rng: np.random.Generator) -> int:
    """Tokens of the encoder part, after `before` tokens of a line [line SEP]."""
    if mode == "lm":
        return 0
    return context - before - 3 if mode == "mlm" else int(rng.integers(context - before - 2))


def compose(
    encoder: Sequence[int],
    read: Sequence[int],
    predicted: Sequence[int],
    marks: Marks,
    settings: EncodeConfig,
    rng: np.random.Generator,
    before: Sequence[int] = (),
    follows: bool = False,
) -> Example:
    """An example of its parts. `before` is a line with its SEP, which predicts SEP if the text `follows` it, else EOT."""
    context, start = settings.num_context, 1 + len(before)
    num_input = start + len(encoder)
    x = [marks.sot, *before, *encoder, marks.seg, *read, marks.eot]
    end = [IGNORE, marks.eot] if settings.original_layout else [marks.eot, IGNORE]
    y = [IGNORE] * num_input + [*predicted, *end]
    x = (x + [marks.nottoken] * context)[:context]
    y = (y + [IGNORE] * context)[:context]

    shift = 0 if settings.no_offset_mlm and not settings.original_layout else 1
    masks = min(int(settings.num_mask * len(encoder)), settings.max_mask)
    if before:
        y[len(before) - shift] = marks.sep if follows else marks.eot
        masks = max(masks - 1, 0)
    for position in (rng.permutation(len(encoder))[:masks] + start).tolist():
        if x[position] < marks.sot:
            y[position - shift] = x[position]
            if rng.random() < MASKED:
                x[position] = marks.msk
            elif rng.random() < RANDOM:
                x[position] = int(rng.integers(marks.last))
    if settings.no_offset_mlm and settings.original_layout:  # it moves x instead, and loses the token after SOT
        x = [x[0], *x[2:], marks.eot]
    return Example(x, y, num_input)


def pack(
    lines: Sequence[str],
    encoding: Encoding,
    marks: Marks,
    settings: EncodeConfig,
    rng: np.random.Generator,
    another: Callable[[], str],
) -> tuple[list[Example], int]:
    """The examples of a document, and the number of its tokens that none of them reads.

    Lines follow each other until the context is full; what is left of the last one begins the next example (in the original it is
    lost). A document that ends within the encoder part gives no example of it. `another` gives a line from elsewhere.
    """
    text = _Text(lines, encoding, marks.newline)
    examples: list[Example] = []
    while text:
        hybrid = settings.mode != "hybrid" or rng.random() < settings.hybrid_rate
        mode = settings.mode if hybrid else "lm"
        before, follows = [], False
        if settings.use_nextsent and mode != "lm":
            follows = bool(rng.random() < 0.5)
            line = text.before() if follows else encoding.encode_text(another().strip(), True)
            before = [*line[: settings.num_context // 2 - 1], marks.sep] if line else []
        length = encoder_length(mode, settings.num_context, len(before), rng)
        room = settings.num_context - 2 - len(before) - length  # decoder tokens that x holds; y holds one more
        encoder: list[int] = []
        read: list[int] = []
        predicted: list[int] = []
        while text and len(read) <= room:
            in_encoder = len(encoder) < length
            ids = text.take(clean=not in_encoder)
            missing = length - len(encoder)
            encoder += ids[:missing]
            as_it_is = in_encoder and settings.original_layout
            parts = (ids[missing:],) * 2 if as_it_is else decoder_part(ids[missing:], marks)
            read += parts[0]
            predicted += parts[1]
        if len(encoder) < length:
            return examples, text.left_out + len(encoder)
        examples.append(compose(encoder, read, predicted, marks, settings, rng, before, follows))
        text.put_back(predicted[room:], lost=settings.original_layout)
    return examples, text.left_out


class _Text:
    """The lines of a document as token ids, one after the other; false when there are none left."""

    def __init__(self, lines: Sequence[str], encoding: Encoding, newline: int) -> None:
        self.lines, self.encoding, self.newline = lines, encoding, newline
        self.next = self.left_out = 0
        self.rest: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.rest) or self.next < len(self.lines)

    def take(self, clean: bool) -> list[int]:
        """The ids of the next line with its end, or what was put back."""
        if self.rest:
            ids, self.rest = self.rest, []
            return ids
        self.next += 1
        return [*self.encoding.encode_text(self.lines[self.next - 1].strip(), clean), self.newline]

    def before(self) -> list[int]:
        """The next line without its end, if another one follows it; else nothing, and it stays."""
        if self.next + (not self.rest) >= len(self.lines):
            return []
        return self.take(clean=True)[:-1]

    def put_back(self, ids: list[int], lost: bool) -> None:
        """What did not fit, unless it is a line's end only."""
        if lost or all(token == self.newline for token in ids):
            self.left_out += len(ids)
        else:
            self.rest = ids
