"""Drawing for chapter 6: the key/value cache of real tokens, and a prefix as learned entries in the same cache."""

from collections.abc import Sequence

from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.notebooks.drawing import FROZEN, MUTED, PLAIN, SMALL, TRAINED, Canvas, Color, Drawing

# Left edge of the first slot, distance between slots, width of a slot [pixels]; and how many slots fit.
LEFT, STEP, SLOT = 96, 84, 76
MOST_SLOTS = 9
Slot = tuple[str, Color]


def cache_and_prefix(tokens: Sequence[str] = ("今日", "は", "いい"), new: str = "天気", length: int = 3) -> Drawing:
    """Draw one attention layer during generation: its cache of keys and values without a prefix, and with one.

    The keys and values of earlier tokens are computed once and cached. A prefix adds entries in front of them that no
    token produced: they are the only trained values. Token t then has position P + t, as in
    `course_lib.generation.prefix_cache`. Source: Li and Liang 2021, section 4 (https://arxiv.org/abs/2101.00190).

    Args:
        tokens: the tokens in the cache.
        new: the token whose query attends to the cache.
        length: P, the number of prefix positions.

    Raises:
        UsageError: if the prefix and the tokens are too many to draw.
    """
    count = length + len(tokens) + 1
    if length < 1 or count > MOST_SLOTS:
        raise UsageError(f"length: {count} positions are not allowed; allowed: up to {MOST_SLOTS}, prefix included")
    canvas = Canvas(max(560, LEFT + STEP * count + 20), 456)
    text = [*((token, FROZEN) for token in tokens), (new, PLAIN)]
    prefix = [(tr("prefix {position}", position=position), TRAINED) for position in range(length)]
    _layer(canvas, 52, tr("one layer, cache of the text"), text, length)
    _layer(canvas, 240, tr("the same layer with a prefix of P = {length}", length=length), [*prefix, *text], 0)
    canvas.key(
        16,
        436,
        {tr("cached, of a token"): FROZEN, tr("learned, of no token"): TRAINED, tr("computed in this step"): PLAIN},
    )
    return canvas.finish(
        tr("From a key/value cache to a prefix"),
        tr(
            "Above: the query of {new} attends to the cached keys and values of {tokens} and to its own. Below: "
            "the same cache with {length} learned keys and values in front. They belong to no token and are all "
            "that prefix tuning trains. The positions of the tokens begin at {length} instead of 0. Each layer "
            "has keys and values of its own.",
            new=new,
            tokens=", ".join(tokens),
            length=length,
        ),
    )


def _layer(canvas: Canvas, y: float, label: str, slots: Sequence[Slot], empty: int) -> None:
    """Draw the slots of one layer, after `empty` free places, and the query of the last slot above them."""
    canvas.text(16, y, label, color=MUTED, anchor="start")
    for name, offset in ((tr("keys"), 64), (tr("values"), 92), (tr("token"), 119), (tr("position"), 137)):
        canvas.text(LEFT - 12, y + offset, name, SMALL, MUTED, "end")
    bus = y + 32
    for number, (token, color) in enumerate(slots):
        x = LEFT + (empty + number) * STEP
        canvas.box(x, y + 50, SLOT, 26, tr("key"), color=color, size=SMALL)
        canvas.box(x, y + 79, SLOT, 26, tr("value"), color=color, size=SMALL)
        canvas.text(x + SLOT / 2, y + 119, token, SMALL)
        position = "–" if color is TRAINED else str(number)
        canvas.text(x + SLOT / 2, y + 137, position, SMALL)
        canvas.arrow((x + SLOT / 2, bus), (x + SLOT / 2, y + 50))
    last = LEFT + (empty + len(slots) - 1) * STEP + SLOT / 2
    canvas.line((LEFT + empty * STEP + SLOT / 2, bus), (last, bus))
    canvas.box(last - SLOT / 2, y - 6, SLOT, 26, tr("query"), color=PLAIN, size=SMALL)
    canvas.line((last, y + 20), (last, bus))
