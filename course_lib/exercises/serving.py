"""Exercises for chapter 7: FasterTransformer's weight order, the number of ranks, and the number format."""

from typing import Any

from course_lib.exercises import Chapter, Exercise, Expression
from course_lib.language.words import tr


def reorder(rows: list[str], heads: int) -> list[str]:
    """Reorder the rows of a GPT-NeoX query_key_value weight for FasterTransformer: queries, then keys, then values."""
    size = len(rows) // (3 * heads)
    return [
        rows[(head * 3 + part) * size + index] for part in range(3) for head in range(heads) for index in range(size)
    ]


def ranks(heads: int, inner: int, split: float, shared: float, card: float) -> int:
    """Return the fewest ranks whose cards hold a model, or 0 if no number of ranks does."""
    for number in range(1, heads + 1):
        if heads % number == 0 and inner % number == 0 and shared + split / number <= card:
            return number
    return 0


FORMATS = ("fp32", "fp16", "bf16")


def _check_format(answer: Any) -> str | None:
    """Measure every format with the notebook's function and judge the choice by that."""
    choice, measure = answer
    # format → bytes, change of the logits [nats]
    measured = {name: measure(name) for name in FORMATS}
    whole = measured["fp32"][0]
    if (ratio := measured[choice][0] / whole) > 0.5:
        return tr("{choice} takes {ratio:.2f} × the bytes of fp32; half is allowed.", choice=choice, ratio=ratio)
    least, best = min((change, name) for name, (size, change) in measured.items() if size <= whole / 2)
    if measured[choice][1] <= least:
        return None
    off = tr("{off:.2g} instead of {least:.2g} nats", off=measured[choice][1], least=least)
    return tr("{choice} has the size of {best}, but its logits are off by {off}.", choice=choice, best=best, off=off)


CHAPTER = Chapter(
    Exercise(
        "write a function reorder(rows, heads): the rows of a GPT-NeoX query_key_value in FasterTransformer's order",
        (
            ((["q0", "k0", "v0", "q1", "k1", "v1"], 2), "the queries of all heads come first, then keys, then values"),
            (
                (["q00", "q01", "k00", "k01", "v00", "v01", "q10", "q11", "k10", "k11", "v10", "v11"], 2),
                "the rows of one head stay together in their order",
            ),
        ),
        (
            "In the Hugging Face order, row (head·3 + part)·size + index is row `index` of a head's query (part 0), "
            "key (1) or value (2).",
            "Loop over part, then head, then index, and take that row: a list comprehension with three `for`.",
        ),
        reorder,
        "The library views the tensor as [heads, 3, size, …] and swaps the first two axes.",
    ),
    Exercise(
        "write a function ranks(heads, inner, split, shared, card): the fewest ranks whose cards hold the model",
        (
            ((4, 512, 8.0, 6.0, 10.0), "each card holds the shared tensors wholly: 6 + 8/2 = 10 GB"),
            (
                (22, 11264, 6.85, 0.36, 2.5),
                "3 cards have room for rinna's 3.6B in fp16, but 3 does not divide its 22 heads",
            ),
            ((12, 100, 9.0, 1.0, 4.0), "3 cards have room, but 3 does not divide the inner width 100"),
            ((8, 64, 8.0, 6.0, 5.0), "the shared tensors alone need 6 GB on each card, so no number of cards helps"),
        ),
        (
            "Try 1, 2, 3, … ranks in turn. Which two sizes must N divide, and what does each card hold?",
            "A card holds shared + split / N. N must divide heads and inner. N cannot be larger than heads.",
        ),
        ranks,
        "More cards than needed cost more communication per token. On each card the engine also needs room for the "
        "key/value cache, which is split as well.",
    ),
    Exercise(
        "choose the number format for serving: at most half of fp32's bytes, and the smallest change in the logits",
        _check_format,
        (
            "Measure all three formats; the sizes leave two of them.",
            "Which of the two has more bits for the digits of a number?",
        ),
        Expression('("fp16", measure)'),
        "fp16 has 11 significant bits (10 of them stored) and reaches 65504; bf16 has 8 (7 stored) and the range of "
        "fp32. A model whose weights or activations exceed 65504 needs bf16; the export refuses such weights in fp16. "
        "The original backend for GPT-NeoX would run bf16 weights in fp32.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution
