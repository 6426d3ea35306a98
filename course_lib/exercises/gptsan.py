"""Exercises for chapter 5: expert capacity, a capacity factor to choose, and the prefix-LM mask."""

from typing import Any

from course_lib.exercises import Chapter, Exercise
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


# Largest share of tokens without room that the experiment allows.
ALLOWED = 0.02


def _check_factor(answer: Any) -> str | None:
    two = tr("hand in two things: (factor, dropped); dropped maps each factor to the share of the tokens without room.")
    if not isinstance(answer, list) or len(answer) != 2 or not isinstance(answer[1], dict | list):
        return two
    try:
        factor, dropped = float(answer[0]), {float(key): float(value) for key, value in dict(answer[1]).items()}
    except (TypeError, ValueError):
        return tr("dropped maps numbers to numbers: {1.0: share, 1.25: share, …}.")
    if any(not 0 <= share <= 1 for share in dropped.values()):
        return tr("a share is between 0 and 1: tokens without room ÷ all tokens, neither a count nor percent.")
    if factor not in dropped:
        return tr(
            "you chose {factor:g}, but measured only {measured}.",
            factor=factor,
            measured=", ".join(f"{key:g}" for key in sorted(dropped)),
        )
    shares = [dropped[key] for key in sorted(dropped)]
    if len(shares) < 3:
        return tr("measure at least three factors, from 1.0 up; you measured {number}.", number=len(shares))
    if shares != sorted(shares, reverse=True):
        return tr("the shares rise with the factor: are they the tokens that have room? Here it is 1 minus that.")
    if dropped[factor] > ALLOWED:
        return tr(
            "with {factor:g}, {dropped:.1%} of the tokens have no room, {allowed:.0%} are allowed: go higher.",
            factor=factor,
            dropped=dropped[factor],
            allowed=ALLOWED,
        )
    smaller = [key for key in sorted(dropped) if key < factor]
    if not smaller:
        return tr(
            "{factor:g} is enough; would less be enough, too? Measure a factor below it: capacity costs time.",
            factor=factor,
        )
    if enough := [key for key in smaller if dropped[key] <= ALLOWED]:
        return tr(
            "{factor:g} is more than needed: with {enough:g}, only {dropped:.1%} have no room.",
            factor=factor,
            enough=enough[0],
            dropped=dropped[enough[0]],
        )
    return None


CHAPTER = Chapter(
    Exercise(
        "write a function kept(choices, experts, factor): for each token whether the expert it chose has room for it",
        (
            (
                ([0, 0, 0, 0, 0, 0, 1, 1], 2, 1.25),
                [True, True, True, True, True, False, True, True],
                "8·1.25/2 = 5 tokens for each expert, first come, first served: "
                "the sixth token of expert 0 has no room",
                (
                    ([True] * 8, "5 of 8 tokens fit into an expert, but 6 chose expert 0: one has no room"),
                    ([False] + [True] * 7, "the first come are served: count the tokens before, not after"),
                    ([True] * 4 + [False, False, True, True], "the capacity is the even share of 4 times the factor"),
                    ([True] * 5 + [False] * 3, "each expert counts its own tokens: expert 1 has room"),
                ),
            ),
            (
                ([0, 1, 0, 1, 0, 1, 0, 0, 0], 2, 1.25),
                [True] * 8 + [False],
                "the capacity is int(5.625) = 5, and each expert has its own count",
            ),
            (
                ([2, 2, 2, 2, 2, 0], 4, 1.0),
                [True, True, True, True, False, True],
                "an even share is 1.5 here, rounded down to 1, but no capacity is below 4",
            ),
        ),
        (
            "The capacity is an even share of the tokens times the factor, rounded down, but at least 4.",
            "A token is kept if fewer than that many tokens before it chose the same expert: "
            "choices[:position].count(expert).",
        ),
        kept,
        "Tokens without room get no output from an expert; only the residual stream and the soft bypass carry them on.",
    ),
    Exercise(
        f"find the smallest capacity factor with which at most {ALLOWED:.0%} of the tokens have no room, "
        "and hand in (factor, dropped)",
        _check_factor,
        (
            "Measure 1.0, 1.25, 1.5 and 2.0 first; the share falls with the factor.",
            "Then measure between the last factor that drops too many and the first that does not.",
        ),
        (1.5, {1.0: 0.11, 1.25: 0.04, 1.5: 0.01}),
        "Your numbers differ: they depend on how even the router is. With equal shares, 1.0 would drop nothing. Every "
        "expert computes its whole capacity, used or not, so a factor of 2 doubles that cost.",
    ),
    Exercise(
        "write a function sees(tokens, prefix, spout): a row of 0 and 1 for each token, a column for each slot",
        (
            (
                (3, 0, False),
                [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
                "row i is what token i sees: all tokens up to itself",
                (
                    ([[0, 0, 0], [1, 0, 0], [1, 1, 0]], "a token sees itself, too"),
                    ([[1, 1, 1], [0, 1, 1], [0, 0, 1]], "rows and columns are exchanged"),
                    ([[1, 1, 1]] * 3, "a token must not see the tokens after it"),
                ),
            ),
            (
                (3, 2, False),
                [[1, 1, 0], [1, 1, 0], [1, 1, 1]],
                "the first two slots are the prefix: every token sees them, even a token before them",
            ),
            (
                (2, 0, True),
                [[1, 1, 0], [1, 1, 1]],
                "the spout is a slot before all tokens, which every token sees: a column, but no row",
            ),
            (
                (3, 3, True),
                [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]],
                "the prefix is counted in slots, and the spout is the first of them",
            ),
        ),
        (
            "With a spout there is one slot more than there are tokens, and token i has slot i + 1.",
            "A token sees a slot if the slot is not after its own, or if the slot is one of the first `prefix` slots.",
        ),
        sees,
        "This is the prefix-LM mask as the original counts it: with a spout, a prefix of n slots has n - 1 tokens.",
    ),
    name="gptsan",
)
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution
