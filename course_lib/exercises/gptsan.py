"""Exercises for chapter 5: expert capacity, a capacity factor to choose, and the prefix-LM mask."""

from functools import cache
from typing import Any

from course_lib.exercises import Chapter, Exercise, Expression
from course_lib.language.words import tr


def kept(choices: list[int], experts: int, factor: float) -> list[bool]:
    """Return, for each token, whether the expert it chose has room for it."""
    capacity = max(4, int(len(choices) * factor / experts))
    return [choices[:position].count(expert) < capacity for position, expert in enumerate(choices)]


def sees(tokens: int, prefix: int, spout: bool) -> list[list[int]]:
    """Return the prefix-LM attention mask: one row per token, one column per slot, 1 where the token sees the slot."""
    first = int(spout)
    slots = range(first + tokens)
    return [[int(slot <= first + token or slot < prefix) for slot in slots] for token in range(tokens)]


# Largest share of tokens without room that the experiment allows, and the step of its factors.
ALLOWED, STEP = 0.02, 0.05


@cache
def _choices() -> tuple[list[int], int]:
    """Return what the notebook's cell measures: the experts that 1,024 positions choose, and the number of experts."""
    from course_lib.checkpoints.torch_dtypes import TORCH
    from course_lib.gptsan import products
    from course_lib.gptsan.generate import GPTSANGenerator
    from course_lib.gptsan.measure import router_logits

    dtype = TORCH[products.tuned_settings().precision.dtype]
    model = GPTSANGenerator.open(products.BASE.path() / products.MODEL, dtype=dtype).model
    logits = router_logits(model, products.base_examples()[1])[0]
    return logits.argmax(-1)[:1024].tolist(), logits.shape[-1]


def _check_factor(answer: Any) -> str | None:
    choices, experts = _choices()
    factor = round(float(answer), 4)
    lower = round(factor - STEP, 2)
    dropped, before = (kept(choices, experts, each).count(False) / len(choices) for each in (factor, lower))
    if dropped > ALLOWED:
        share = {"factor": factor, "dropped": dropped}
        return tr("with {factor:g}, {dropped:.1%} of the tokens have no room: go higher.", **share)
    if lower >= 1 and before <= ALLOWED:
        return tr("{factor:g} is more than needed: {lower:g} drops few enough.", factor=factor, lower=lower)
    return None


CHAPTER = Chapter(
    Exercise(
        "write a function kept(choices, experts, factor): for each token whether the expert it chose has room for it",
        (
            (
                ([0, 0, 0, 0, 0, 0, 1, 1], 2, 1.25),
                "8·1.25/2 = 5 tokens for each expert, first come, first served: the sixth of expert 0 has no room",
            ),
            (([0, 1, 0, 1, 0, 1, 0, 0, 0], 2, 1.25), "the capacity is int(5.625) = 5"),
            (([2] * 5 + [0], 4, 1.0), "the share is 1.5 here, but no capacity is below 4"),
        ),
        (
            "The capacity is an even share of the tokens times the factor, rounded down, but at least 4.",
            "A token is kept if fewer than that many before it chose its expert: choices[:position].count(expert).",
        ),
        kept,
        "Tokens without room get no output from an expert; only the residual stream and the soft bypass carry them on.",
    ),
    Exercise(
        f"find the smallest capacity factor with which at most {ALLOWED:.0%} of the tokens have no room, "
        f"in steps of {STEP} from 1.0",
        _check_factor,
        (
            "Measure 1.0, 1.25, 1.5 and 2.0 first; the share falls with the factor.",
            "Then measure between the last factor that drops too many and the first that does not.",
        ),
        Expression("next(f / 20 for f in range(20, 81) if kept(choices, max(choices) + 1, f / 20).count(False) <= 20)"),
        "The number depends on how even the router is. With equal shares, 1.0 would drop nothing. Every "
        "expert computes its whole capacity, used or not, so a factor of 2 doubles that cost.",
    ),
    Exercise(
        "write a function sees(tokens, prefix, spout): a row of 0 and 1 for each token, a column for each slot",
        (
            ((3, 0, False), "row i is what token i sees: all tokens up to itself, and itself"),
            ((3, 2, False), "the first two slots are the prefix: every token sees them"),
            ((2, 0, True), "the spout is a slot that every token sees: a column, but no row"),
            ((2, 2, True), "the prefix is counted in slots, and the spout is the first of them"),
        ),
        (
            "With a spout there is one slot more than there are tokens, and token i has slot i + 1.",
            "A token sees a slot if the slot is not after its own, or if the slot is one of the first `prefix` slots.",
        ),
        sees,
        "This is the prefix-LM mask as the original counts it: with a spout, a prefix of n slots has n - 1 tokens.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution
