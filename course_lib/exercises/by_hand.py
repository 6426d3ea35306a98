"""Exercises for the first half of chapter 4: attention weights, an AdamW update, and a learning rate to choose."""

from math import exp, isclose, isfinite, log
from typing import Any

from course_lib.exercises import Case, Chapter, Exercise
from course_lib.language.words import tr


def causal(scores: list[list[float]]) -> list[list[float]]:
    """Return the attention weights of one head, [seq, seq]: each row is a softmax over the columns up to its own."""
    from math import exp

    weights = []
    for row, line in enumerate(scores):
        seen = [exp(score - max(line[: row + 1])) for score in line[: row + 1]]
        weights.append([value / sum(seen) for value in seen] + [0.0] * (len(line) - row - 1))
    return weights


_LN2, _LN3 = log(2), log(3)
# the share of a score of 9 beside a score of 0
_LATE = 1 / (1 + exp(-9))
_CAUSAL: tuple[Case, ...] = (
    (
        ([[5.0]],),
        [[1.0]],
        "a single token reads only from itself, whatever its score",
        (([[exp(5)]], "divide each row by its sum"),),
    ),
    (
        ([[0.0, 9.0], [0.0, 0.0]],),
        [[1.0, 0.0], [0.5, 0.5]],
        "row 1 must not read from column 2: its weight is 0",
        (
            ([[1 - _LATE, _LATE], [0.5, 0.5]], "there is no mask: row 1 reads from column 2"),
            ([[0.5, 0.5], [0.5, 0.5]], "a score of 0 is no mask, since e^0 = 1; a score of -inf gives weight 0"),
            ([[1 - _LATE, 0], [0.5, 0.5]], "the mask came after the division: row 1 must add up to 1"),
            ([[1, 0.5], [0, 0.5]], "rows and columns are exchanged: a row belongs to the token that reads"),
        ),
    ),
    (
        ([[0.0, 0.0], [0.0, _LN3]],),
        [[1.0, 0.0], [0.25, 0.75]],
        "a softmax divides e^score by the sum of e^score; dividing the scores themselves is something else",
    ),
    (
        ([[0.0, 0.0, 9.0], [_LN2, 0.0, 9.0], [0.0, 0.0, 0.0]],),
        [[1.0, 0.0, 0.0], [2 / 3, 1 / 3, 0.0], [1 / 3, 1 / 3, 1 / 3]],
        "mask first, then divide: each row must add up to 1, and rows are the tokens that read",
    ),
    (([[800.0, 0.0], [800.0, 800.0]],), [[1.0, 0.0], [0.5, 0.5]], "subtract the row's largest score before exp"),
)


def update(weight: float, gradient: float, first: float, second: float, t: int, rate: float) -> float:
    """Return one weight after AdamW's step `t`, which counts from 1. Source: arXiv:1711.05101, algorithm 2."""
    first = 0.9 * first + 0.1 * gradient
    second = 0.95 * second + 0.05 * gradient**2
    step = first / (1 - 0.9**t) / ((second / (1 - 0.95**t)) ** 0.5 + 1e-8)
    return float(weight * (1 - rate * 0.1) - rate * step)


_UPDATE: tuple[Case, ...] = (
    (
        (0.0, 2.0, 0.0, 0.0, 1, 0.1),
        -0.1,
        "in step 1 the corrected averages are the gradient and its square, so the step is rate · sign of the gradient",
        (
            (-0.2, "that is plain gradient descent, rate · gradient; AdamW divides by the root of the second average"),
            (0.1, "the weight moves against the gradient"),
        ),
    ),
    ((1.0, 0.0, 0.0, 1.0, 5, 0.1), 0.99, "without a gradient only weight decay acts: weight · (1 − rate · 0.1)"),
    (
        (0.0, 1.0, 0.5, 1.0, 2, 0.1),
        round(update(0.0, 1.0, 0.5, 1.0, 2, 0.1), 6),
        "update both averages first, then divide them by 1 − βᵗ with their own β",
    ),
    (
        (1.0, -3.0, 0.2, 4.0, 3, 0.01),
        round(update(1.0, -3.0, 0.2, 4.0, 3, 0.01), 6),
        "the averages are β · old + (1 − β) · new, with β₁ = 0.9 for the gradient and β₂ = 0.95 for its square",
    ),
)


# The loss depends on the profile's vocabulary and text, so it is compared with that of another rate.
GAIN, STEPS, USUAL = 0.09, 60, 3e-3


def _check_rates(answer: Any) -> str | None:
    if not isinstance(answer, dict):
        return tr("hand in the tries, a dict of learning rates and histories: {rate: list(learn(rate, 60))}.")
    tries: dict[float, tuple[float, float]] = {}  # rate → held-out loss at the first and at the last step
    for rate, history in answer.items():
        entries = history if isinstance(history, list) else []
        if not entries or not all(isinstance(entry, dict) and "held out" in entry for entry in entries):
            return tr(
                "{rate:g}: the history is the list of entries that learn gives: list(learn({rate:g}, {steps})).",
                rate=rate,
                steps=STEPS,
            )
        if entries[-1]["step"] != STEPS:
            return tr(
                "{rate:g}: the history ends at step {last}; the experiment has {steps} steps.",
                rate=rate,
                last=entries[-1]["step"],
                steps=STEPS,
            )
        tries[float(rate)] = float(entries[0]["held out"]), float(entries[-1]["held out"])
    usual = next((last for rate, (_, last) in tries.items() if isclose(rate, USUAL, rel_tol=1e-6)), None)
    if usual is None:
        return tr("the try with a rate of {usual:g}, to compare with, is missing.", usual=USUAL)
    if len(tries) == 1:
        return tr("{usual:g} is the only rate so far; add one of yours.", usual=USUAL)
    if any(last <= usual - GAIN for _, last in tries.values()):
        return None
    rate, (first, loss) = list(tries.items())[-1]
    if not isfinite(loss) or loss > first:
        return tr(
            "with a rate of {rate:g} the loss rises to {loss:.2f}: each update overshoots. Try a tenth of it.",
            rate=rate,
            loss=loss,
        )
    advice = tr("too cautious: try three times as much") if rate < 1e-2 else tr("too high: try half as much")
    return tr(
        "{loss:.2f} nats on held-out text, {goal:.2f} is wanted. {rate:g} is {advice}.",
        loss=loss,
        goal=usual - GAIN,
        rate=rate,
        advice=advice,
    )


CHAPTER = Chapter(
    Exercise(
        "write a function causal(scores) that gives the attention weights for a square table of scores",
        _CAUSAL,
        (
            "Go through the rows; row number r (from 0) may read from the columns 0 to r.",
            "For these columns take e^score, divide by their sum, and fill the rest of the row with 0.",
        ),
        causal,
        "Subtracting the largest score changes nothing in the quotient, but keeps e^score from overflowing.",
    ),
    Exercise(
        "write a function update(weight, gradient, first, second, t, rate): the weight after AdamW's step t",
        _UPDATE,
        (
            "Update both averages, correct each by 1 − βᵗ, then move the weight; weight decay uses the old weight.",
            "weight · (1 − rate · 0.1) − rate · first/(1 − 0.9ᵗ) / (√(second/(1 − 0.95ᵗ)) + 1e-8)",
        ),
        update,
        "In step 1 every weight whose gradient is not 0 moves by the learning rate, however small the gradient.",
    ),
    Exercise(
        f"find a learning rate with which {STEPS} steps end at least {GAIN} nats lower than with {USUAL:g}",
        _check_rates,
        (
            "Change the learning rate by a factor of three at a time and note each loss.",
            "The best rate for few steps is higher than for many: look between 1e-2 and 1e-1.",
        ),
        {USUAL: [{"step": STEPS, "held out": 6.79}], 4e-2: [{"step": STEPS, "held out": 6.6}]},
        "Too low wastes steps, too high overshoots; the best rate also depends on the number of steps and the batch.",
    ),
    name="by_hand",
)
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution
