"""Exercises for the first half of chapter 4: attention weights, an AdamW update, and a learning rate to choose."""

from functools import cache
from typing import Any

from course_lib.corpus.products import has_world
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


# The loss depends on the profile's vocabulary and text, so it is compared with that of another rate. On real text the
# losses lie closer together than on the small world.
GAIN, GAIN_ON_REAL_TEXT, STEPS, USUAL = 1.0, 0.09, 60, 3e-3


@cache
def _losses(learn: Any, rate: float) -> tuple[float, float]:
    """Return the first and the last held-out loss [nats per token] of the notebook's experiment."""
    history = list(learn(rate, STEPS))
    return float(history[0]["held out"]), float(history[-1]["held out"])


def _check_rate(answer: Any) -> str | None:
    """Run the notebook's experiment with the learner's rate, and with the usual one to compare."""
    learn, rate = answer
    goal = _losses(learn, USUAL)[1] - (GAIN if has_world() else GAIN_ON_REAL_TEXT)
    first, loss = _losses(learn, rate)
    if loss <= goal:
        return None
    # NaN, too
    if not loss <= first:
        advice = tr("the loss rises, because each update overshoots; try a tenth of the rate")
    else:
        advice = tr("too cautious: try three times as much") if rate < 1e-2 else tr("too high: try half as much")
    return tr("{loss:.2f} nats on held-out text, {goal:.2f} are wanted: {advice}.", loss=loss, goal=goal, advice=advice)


CHAPTER = Chapter(
    Exercise(
        "write a function causal(scores) that gives the attention weights for a square table of scores",
        (
            (([[5.0]],), "divide each row by its sum"),
            (
                ([[0.0, 9.0], [0.0, 0.0]],),
                "row 1 must not read from column 2 and must add up to 1, so mask before the division, with -inf",
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
                "in step 1 the corrected averages are g and g²: the weight moves by the rate, against the gradient",
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
        f"find a learning rate with which {STEPS} steps end at least {GAIN:g} nat lower than with {USUAL:g} "
        f"({GAIN_ON_REAL_TEXT} nats on real text)",
        _check_rate,
        (
            "Change the learning rate by a factor of three at a time and note each loss.",
            "The best rate for few steps is higher than for many: look between 1e-2 and 1e-1.",
        ),
        Expression("(learn, 0.02)"),
        "Too low wastes steps, too high overshoots; the best rate also depends on the number of steps and the batch.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution
