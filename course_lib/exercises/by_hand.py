"""Exercises for the first half of chapter 4: attention weights, an AdamW update, and a learning rate to choose."""

from functools import cache
from math import exp, log
from typing import Any

from course_lib.exercises import Chapter, Exercise, Expression
from course_lib.language.words import tr


def causal(scores: list[list[float]]) -> list[list[float]]:
    """Return the attention weights of one head, [seq, seq]: each row is a softmax over the columns up to its own."""
    from math import exp

    weights = []
    for row, line in enumerate(scores):
        seen = [exp(score - max(line[: row + 1])) for score in line[: row + 1]]
        weights.append([value / sum(seen) for value in seen] + [0.0] * (len(line) - row - 1))
    return weights


def update(weight: float, gradient: float, first: float, second: float, t: int, rate: float) -> float:
    """Return one weight after AdamW's step `t`, which counts from 1. Source: arXiv:1711.05101, algorithm 2."""
    first = 0.9 * first + 0.1 * gradient
    second = 0.95 * second + 0.05 * gradient**2
    step = first / (1 - 0.9**t) / ((second / (1 - 0.95**t)) ** 0.5 + 1e-8)
    return float(weight * (1 - rate * 0.1) - rate * step)


# The loss depends on the profile's vocabulary and text, so it is compared with that of another rate.
GAIN, STEPS, USUAL = 0.09, 60, 3e-3


@cache
def _usual(learn: Any) -> float:
    return float(list(learn(USUAL, STEPS))[-1]["held out"])


def _check_rate(answer: Any) -> str | None:
    """Run the notebook's experiment with the learner's rate, and with the usual one to compare."""
    if not isinstance(answer, list) or len(answer) != 2 or not callable(answer[0]):
        return tr("hand in the notebook's function and your rate: (learn, 0.01).")
    learn, rate = answer
    goal, history = _usual(learn) - GAIN, list(learn(rate, STEPS))
    first, loss = float(history[0]["held out"]), float(history[-1]["held out"])
    if loss <= goal:
        return None
    # NaN, too
    if not loss <= first:
        return tr(
            "the loss rises to {loss:.2f}: each update overshoots. Try a tenth of {rate:g}.", rate=rate, loss=loss
        )
    advice = tr("too cautious: try three times as much") if rate < 1e-2 else tr("too high: try half as much")
    found = tr("{loss:.2f} nats on held-out text", loss=loss)
    return tr("{found}, {goal:.2f} is wanted. {rate:g} is {advice}.", found=found, goal=goal, rate=rate, advice=advice)


# the share of a score of 9 beside a score of 0
_LATE = 1 / (1 + exp(-9))

CHAPTER = Chapter(
    Exercise(
        "write a function causal(scores) that gives the attention weights for a square table of scores",
        (
            (([[5.0]],), "a single token reads only from itself: divide each row by its sum"),
            (
                ([[0.0, 9.0], [0.0, 0.0]],),
                "row 1 must not read from column 2: its weight is 0",
                ([[1 - _LATE, _LATE], [0.5, 0.5]], "there is no mask: row 1 reads from column 2"),
                ([[0.5, 0.5], [0.5, 0.5]], "a score of 0 is no mask: e^0 = 1; a score of -inf gives weight 0"),
                ([[1 - _LATE, 0], [0.5, 0.5]], "the mask came after the division: row 1 must add up to 1"),
            ),
            (
                ([[0.0, 0.0, 9.0], [log(2), 0.0, 9.0], [0.0, 0.0, 0.0]],),
                "mask first, then divide each e^score by the sum of e^score in its row",
            ),
            (([[800.0, 0.0], [800.0, 800.0]],), "subtract a row's largest score before exp"),
        ),
        (
            "Go through the rows; row number r (from 0) may read from the columns 0 to r.",
            "For these columns take e^score, divide by their sum, and fill the rest of the row with 0.",
        ),
        causal,
        "Subtracting the largest score changes nothing in the quotient, but keeps e^score from overflowing.",
    ),
    Exercise(
        "write a function update(weight, gradient, first, second, t, rate): the weight after AdamW's step t",
        (
            (
                (0.0, 2.0, 0.0, 0.0, 1, 0.1),
                "in step 1 the corrected averages are the gradient and its square, so the weight moves by the rate",
                (-0.2, "that is plain gradient descent; AdamW divides by the root of the second average"),
                (0.1, "the weight moves against the gradient"),
            ),
            ((1.0, 0.0, 0.0, 1.0, 5, 0.1), "without a gradient only weight decay acts: weight · (1 − 0.1 rate)"),
            (
                (1.0, -3.0, 0.2, 4.0, 3, 0.01),
                "update both averages with β₁ = 0.9 and β₂ = 0.95 first, then divide them by 1 − βᵗ with their own β",
            ),
        ),
        (
            "Update both averages, correct each by 1 − βᵗ, then move the weight; weight decay uses the old weight.",
            "weight · (1 − rate · 0.1) − rate · first/(1 − 0.9ᵗ) / (√(second/(1 − 0.95ᵗ)) + 1e-8)",
        ),
        update,
        "In step 1 every weight whose gradient is not 0 moves by the learning rate, however small the gradient.",
    ),
    Exercise(
        f"find a learning rate with which {STEPS} steps end at least {GAIN} nats lower than with {USUAL:g}",
        _check_rate,
        (
            "Change the learning rate by a factor of three at a time and note each loss.",
            "The best rate for few steps is higher than for many: look between 1e-2 and 1e-1.",
        ),
        Expression("(learn, 0.04)"),
        "Too low wastes steps, too high overshoots; the best rate also depends on the number of steps and the batch.",
    ),
)
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution
