"""Exercises of chapter 5."""

from typing import Any

from course_lib.exercises import Chapter, Exercise, plain, run_cases


def encode(text: str, ids: dict[str, int]) -> list[int]:
    """The ids of a text where the smallest id wins; -1 for a character that no entry begins with."""
    found = []
    while text:
        pieces = [text[:length] for length in (1, 2, 3) if text[:length] in ids]
        best = min(pieces, key=ids.__getitem__, default=text[0])
        found.append(ids.get(best, -1))
        text = text[len(best) :]
    return found


def _check_encode(answer: Any) -> str | None:
    return run_cases(
        plain(answer),
        [
            (
                ("学生", {"学": 0, "学生": 1, "生": 2}),
                [0, 2],
                "the smallest id wins, not the longest piece: 学 is 0, 学生 is 1",
            ),
            (
                ("ている", {"て": 5, "てい": 2, "ている": 1, "い": 3, "る": 4}),
                [1],
                "pieces have 1, 2 or 3 characters, and the scan goes on behind the one it took",
            ),
            (
                ("が大学", {"大学": 0, "が大": 1, "学": 2, "が": 3}),
                [1, 2],
                "the scan goes from left to right: が大 takes 大 before 大学 has its turn",
            ),
            (("で犬です", {"で": 0, "です": 1}), [0, -1, 0, -1], "no entry begins with 犬: -1, and on with the next"),
        ],
    )


def kept(choices: list[int], experts: int, factor: float) -> list[bool]:
    """Which tokens find room at the expert they chose."""
    capacity = max(4, int(len(choices) * factor / experts))
    return [choices[:place].count(expert) < capacity for place, expert in enumerate(choices)]


def _check_kept(answer: Any) -> str | None:
    def room(taken: list[int]) -> list[bool]:
        return [bool(each) for each in taken]

    return run_cases(
        plain(answer),
        [
            (
                ([0, 0, 0, 0, 0, 0, 1, 1], 2, 1.25),
                room([1, 1, 1, 1, 1, 0, 1, 1]),
                "8·1.25/2 = 5 tokens for each expert, first come, first served: the sixth of expert 0 is one too many",
            ),
            (
                ([0, 1, 0, 1, 0, 1, 0, 0, 0], 2, 1.25),
                room([1, 1, 1, 1, 1, 1, 1, 1, 0]),
                "the capacity is int(5.625) = 5, for each expert by itself",
            ),
            (
                ([2, 2, 2, 2, 2, 0], 4, 1.0),
                room([1, 1, 1, 1, 0, 1]),
                "an even share would be 1 here, but no capacity is below 4",
            ),
        ],
    )


def sees(tokens: int, prefix: int, spout: bool) -> list[list[int]]:
    """A row for each token, a column for each slot: 1 where the token sees the slot."""
    first = int(spout)
    slots = range(first + tokens)
    return [[int(slot <= first + token or slot < prefix) for slot in slots] for token in range(tokens)]


def _check_sees(answer: Any) -> str | None:
    return run_cases(
        plain(answer),
        [
            ((3, 0, False), [[1, 0, 0], [1, 1, 0], [1, 1, 1]], "row i is what token i sees: all up to itself"),
            (
                (3, 2, False),
                [[1, 1, 0], [1, 1, 0], [1, 1, 1]],
                "the first two slots are prefix: every token sees them, also one that stands before",
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
        ],
    )


CHAPTER = Chapter(
    Exercise(
        "write a function encode(text, ids) that gives the ids of a text where the smallest id wins, -1 for what is in no entry",
        _check_encode,
        (
            "At each place look up the pieces of 1, 2 and 3 characters, and of those that are in `ids` take the one with the smallest id.",
            "min(pieces, key=ids.get) finds it; go on behind that piece. If there is none, give -1 and go on by one character.",
        ),
        encode,
        "Ids are ranks: a more frequent piece wins over a longer one. The library looks the winner up in a table that is made once.",
    ),
    Exercise(
        "write a function kept(choices, experts, factor): for each token whether the expert it chose has room for it",
        _check_kept,
        (
            "The capacity is an even share of the tokens times the factor, cut to a whole number, but never below 4.",
            "A token is kept if fewer than that many tokens before it chose the same expert: choices[:place].count(expert).",
        ),
        kept,
        "Tokens without room get nothing from the experts and live on by the residual stream and the soft bypass.",
    ),
    Exercise(
        "write a function sees(tokens, prefix, spout): a row of 0 and 1 for each token, a column for each slot",
        _check_sees,
        (
            "With a spout there is one slot more than tokens, and token i stands in slot i + 1.",
            "A slot is seen if it is not after the token's own, or if it is one of the first `prefix` slots.",
        ),
        sees,
        "That is the prefix-LM mask as the original counts it: with a spout, a prefix of n slots has n - 1 tokens.",
    ),
)
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution
