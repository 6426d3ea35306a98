"""Layout of GPTSAN training examples: lists of token ids, as in mode lm of tools/make_tfrecord_simple.py.

    x   SOT SEG text EOT NOT …      input tokens, cut to the context length
    y   the target for each position (already shifted by one), -1 where there is no target

SOT starts an example, SEG ends the prefix, EOT ends the text and NOT (`<|nottoken|>`) is padding. The text is cleaned.
In x, SEP stands for each sentence end, which y keeps. A run of three or more equal tokens becomes one such token
followed by BAG. In contrast to the script (in the tanreinama/GPTSAN repository), the end of text is the target of the
last token, and the rest of a line that does not fit begins the next example instead of being lost.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from course_lib.gptsan.swe import NAMED, SubwordEncoding

# Value in y at positions without a target.
NO_TARGET = -1
# Characters that end a sentence.
ENDS = "。｡．.？！?!:：;；"
# A run of at least this many equal tokens becomes one such token followed by BAG.
RUN = 3


@dataclass(frozen=True)
class SpecialIds:
    """Token ids that have a special meaning in the layout."""

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
    def of(cls, encoding: SubwordEncoding) -> "SpecialIds":
        """Return the ids for an encoding; `ends` has no byte tokens."""
        codes = [encoding.encode_text(end) for end in ENDS]
        ends = frozenset(code[0] for code in codes if len(code) == 1)
        (newline,), (byte0,) = encoding.encode_text("\n"), encoding.encode_text("<|byte0|>")
        named = {name: getattr(encoding, name) for name in NAMED}
        return cls(**named, newline=newline, last=byte0 - 1, ends=ends)


def inputs_and_targets(ids: Iterable[int], special: SpecialIds) -> tuple[list[int], list[int]]:
    """Return the inputs and the targets (not yet shifted) for the ids of a cleaned line."""
    targets: list[int] = []
    for token, run in groupby(ids):
        count = len(list(run))
        targets += [token, special.bag] if count >= RUN and token <= special.last else [token] * count
    return [special.sep if token in special.ends else token for token in targets], targets


def pack(
    lines: Iterable[str], encoding: SubwordEncoding, special: SpecialIds, context: int
) -> list[tuple[list[int], list[int]]]:
    """Pack the lines of a document into examples (x, y) of `context` tokens each."""
    examples = []
    inputs: list[int] = []
    targets: list[int] = []
    # Number of tokens that fit in x after SOT and SEG; y has a target more.
    fitting = context - 2
    for line in lines:
        ids = [*encoding.encode_text(line.strip(), clean=True), special.newline]
        of_line = inputs_and_targets(ids, special)
        inputs, targets = inputs + of_line[0], targets + of_line[1]
        while len(inputs) > fitting:
            examples.append(_example(inputs, targets, special, context))
            inputs, targets = inputs[fitting:], targets[fitting:]
            # No example of line ends alone.
            if all(token == special.newline for token in targets):
                inputs, targets = [], []
    if inputs:
        examples.append(_example(inputs, targets, special, context))
    return examples


def _example(
    inputs: Sequence[int], targets: Sequence[int], special: SpecialIds, context: int
) -> tuple[list[int], list[int]]:
    """Return x and y for a text that is padded or cut."""
    x = [special.sot, special.seg, *inputs, special.eot] + [special.nottoken] * context
    # One token less before the text than in x: y[t] is the token after x[t].
    y = [NO_TARGET, *targets, special.eot] + [NO_TARGET] * context
    return x[:context], y[:context]
