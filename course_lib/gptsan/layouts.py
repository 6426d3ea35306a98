"""Layouts for GPTSAN training examples: lists of token ids in the lm, mlm and hybrid modes.

    x   SOT [line SEP] encoder part SEG decoder part EOT NOT …      cut to the context length
    y   the target for each position (already shifted by one), -1 where there is no target

SOT starts an example, SEP separates sentences, SEG separates the encoder part from the decoder part, EOT ends the text
and NOT (`<|nottoken|>`) is padding. MSK stands for a masked token and BAG for the rest of a run of equal tokens.

The modes differ only in the length of the encoder part: 0 (lm), as long as possible (mlm), or random (hybrid).

- The encoder part is uncleaned text with masked tokens.
- The decoder part is cleaned text. A sentence end is replaced with SEP in x but kept in y. A run of three or more equal
  tokens becomes one such token followed by BAG.

The layouts are those in tools/make_tfrecord_simple.py in the tanreinama/GPTSAN repository; with `original_layout`,
identical to its output.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from course_lib.gptsan.config import EncodeConfig
from course_lib.gptsan.swe import NAMED, SubwordEncoding

# Value in y at positions without a target.
NO_TARGET = -1
# Characters that end a sentence.
ENDS = "。｡．.？！?!:：;；"
# A run of at least this many equal tokens becomes one such token followed by BAG.
RUN = 3
# Fraction of the chosen tokens that become MSK; fraction of the other chosen tokens that become a random token.
MASKED, RANDOM = 0.8, 0.5


@dataclass(frozen=True)
class Marks:
    """Token ids that have a special meaning in the layouts."""

    sot: int
    msk: int
    sep: int
    nottoken: int
    bag: int
    seg: int
    eot: int
    newline: int
    last: int  # last id before the byte tokens
    ends: frozenset[int]  # ids of sentence ends

    @classmethod
    def of(cls, encoding: SubwordEncoding, original: bool = False) -> "Marks":
        """Return the marks for an encoding; `ends` has byte tokens only with `original`, as in the original script."""
        codes = [encoding.encode_text(end) for end in ENDS]
        ends = frozenset(token for code in codes if original or len(code) == 1 for token in code)
        (newline,), (byte0,) = encoding.encode_text("\n"), encoding.encode_text("<|byte0|>")
        named = {name: getattr(encoding, name) for name in NAMED}
        return cls(**named, newline=newline, last=byte0 - 1, ends=ends)


@dataclass(frozen=True)
class Example:
    """One training example. The positions before SEG attend to each other in both directions."""

    x: list[int]  # token ids, length num_context
    y: list[int]  # targets, length num_context
    num_input: int  # number of positions before SEG


def decoder_part(ids: Sequence[int], marks: Marks) -> tuple[list[int], list[int]]:
    """Return the inputs and the targets (not yet shifted) for the decoder part, given a cleaned line or its targets."""
    predicted: list[int] = []
    for token, run in groupby(ids):
        count = len(list(run))
        predicted += [token, marks.bag] if count >= RUN and token <= marks.last else [token] * count
    return [marks.sep if token in marks.ends else token for token in predicted], predicted


def encoder_length(mode: str, context: int, before: int, rng: np.random.Generator) -> int:
    """Return the length of the encoder part [tokens], after a `line SEP` part of length `before`."""
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
    """Build an example from its parts and mask tokens in the encoder part.

    `before` is the line before the encoder part, with SEP. Its target is SEP if the text `follows` that line, else EOT.
    """
    context, start = settings.num_context, 1 + len(before)
    num_input = start + len(encoder)
    x = [marks.sot, *before, *encoder, marks.seg, *read, marks.eot]
    end = [NO_TARGET, marks.eot] if settings.original_layout else [marks.eot, NO_TARGET]
    y = [NO_TARGET] * num_input + [*predicted, *end]
    x = (x + [marks.nottoken] * context)[:context]
    y = (y + [NO_TARGET] * context)[:context]

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
    # The original script shifts x instead of y, which loses the token after SOT.
    if settings.no_offset_mlm and settings.original_layout:
        x = [x[0], *x[2:], marks.eot]
    return Example(x, y, num_input)


def pack(
    lines: Sequence[str],
    encoding: SubwordEncoding,
    marks: Marks,
    settings: EncodeConfig,
    rng: np.random.Generator,
    another: Callable[[], str],
) -> tuple[list[Example], int]:
    """Pack the lines of a document into examples. Return the examples and the number of tokens left out.

    Lines are joined until the context is full. The rest of the last line begins the next example; the original script
    drops it. An encoder part that the document does not fill is left out. `another` returns a line from elsewhere.
    """
    text = _Text(lines, encoding, marks.newline)
    examples: list[Example] = []
    while text:
        mode = settings.mode
        if mode == "hybrid" and rng.random() >= settings.hybrid_rate:
            mode = "lm"
        before, follows = [], False
        if settings.use_nextsent and mode != "lm":
            follows = bool(rng.random() < 0.5)
            line = text.before() if follows else encoding.encode_text(another().strip(), True)
            before = [*line[: settings.num_context // 2 - 1], marks.sep] if line else []
        length = encoder_length(mode, settings.num_context, len(before), rng)
        # Number of decoder tokens that fit in x; y has room for one more.
        room = settings.num_context - 2 - len(before) - length
        encoder: list[int] = []
        read: list[int] = []
        predicted: list[int] = []
        while text and len(read) <= room:
            in_encoder = len(encoder) < length
            ids = text.take(clean=not in_encoder)
            missing = length - len(encoder)
            encoder += ids[:missing]
            rest = ids[missing:]
            # In the original script, the rest of the last line in the encoder part is left unchanged.
            inputs, targets = (rest, rest) if in_encoder and settings.original_layout else decoder_part(rest, marks)
            read += inputs
            predicted += targets
        if len(encoder) < length:
            return examples, text.left_out + len(encoder)
        examples.append(compose(encoder, read, predicted, marks, settings, rng, before, follows))
        text.put_back(predicted[room:], lost=settings.original_layout)
    return examples, text.left_out


class _Text:
    """Reader that returns the lines of a document as token ids. It is false when no tokens are left."""

    def __init__(self, lines: Sequence[str], encoding: SubwordEncoding, newline: int) -> None:
        self.lines, self.encoding, self.newline = lines, encoding, newline
        self.next = self.left_out = 0
        self.rest: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.rest) or self.next < len(self.lines)

    def take(self, clean: bool) -> list[int]:
        """Return the ids that were put back, if any; otherwise, the ids of the next line and a newline token."""
        if self.rest:
            ids, self.rest = self.rest, []
            return ids
        self.next += 1
        return [*self.encoding.encode_text(self.lines[self.next - 1].strip(), clean), self.newline]

    def before(self) -> list[int]:
        """Consume the next line, unless it is the last one, and return its token ids without the newline token."""
        if self.next + (not self.rest) >= len(self.lines):
            return []
        return self.take(clean=True)[:-1]

    def put_back(self, ids: list[int], lost: bool) -> None:
        """Save ids for the next call to `take`, unless they are only newline tokens or `lost`."""
        if lost or all(token == self.newline for token in ids):
            self.left_out += len(ids)
        else:
            self.rest = ids
