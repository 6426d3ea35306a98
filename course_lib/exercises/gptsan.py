"""Exercises for chapter 5: subword encoding, expert capacity, and the prefix-LM mask."""

from course_lib.exercises import Chapter, Exercise


def encode(text: str, ids: dict[str, int]) -> list[int]:
    """Encode a text. At each position, the smallest id wins; a character without a matching entry becomes -1."""
    result = []
    while text:
        pieces = [text[:length] for length in (1, 2, 3) if text[:length] in ids]
        best = min(pieces, key=ids.__getitem__, default=text[0])
        result.append(ids.get(best, -1))
        text = text[len(best) :]
    return result


def kept(choices: list[int], experts: int, factor: float) -> list[bool]:
    """Return, for each token, whether the expert it chose has room for it."""
    capacity = max(4, int(len(choices) * factor / experts))
    return [choices[:position].count(expert) < capacity for position, expert in enumerate(choices)]


def sees(tokens: int, prefix: int, spout: bool) -> list[list[int]]:
    """Return the prefix-LM attention mask: one row per token, one column per slot, 1 where the token sees the slot."""
    first = int(spout)
    slots = range(first + tokens)
    return [[int(slot <= first + token or slot < prefix) for slot in slots] for token in range(tokens)]


CHAPTER = Chapter(
    Exercise(
        "write a function encode(text, ids) that gives the ids of a text where the smallest id wins, "
        "-1 for what is in no entry",
        (
            (
                ("学生", {"学": 0, "学生": 1, "生": 2}),
                [0, 2],
                "the smallest id wins, not the longest piece: 学 is 0, 学生 is 1",
            ),
            (
                ("ている", {"て": 5, "てい": 2, "ている": 1, "い": 3, "る": 4}),
                [1],
                "pieces have 1, 2 or 3 characters, and the scan continues after the piece that it took",
                (
                    ([5, 3, 4], "these are single characters; look up pieces of 2 and 3 characters, too"),
                    ([2, 4], "ている has 3 characters and the smallest id: look up pieces of 3 characters"),
                    ([1, 3, 4], "the scan must continue after the piece that it took, here behind ている"),
                ),
            ),
            (
                ("が大学", {"大学": 0, "が大": 1, "学": 2, "が": 3}),
                [1, 2],
                "the scan goes from left to right: が大 uses up 大 before the scan reaches 大学",
            ),
            (
                ("で犬です", {"で": 0, "です": 1}),
                [0, -1, 0, -1],
                "no entry begins with 犬: return -1 for it and continue with the next character",
            ),
        ),
        (
            "At each position, look up the pieces of 1, 2 and 3 characters. Of the pieces that are in `ids`, "
            "take the one with the smallest id.",
            "min(pieces, key=ids.get) finds the piece; continue after it. If there is none, append -1 and continue "
            "with the next character.",
        ),
        encode,
        "Ids are ranks: a more frequent piece wins over a longer one. The library looks up the winner in a table "
        "that it builds once.",
    ),
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
                "an even share would be 1 here, but no capacity is below 4",
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
)
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution
