"""Exercises of chapter 6."""

from typing import Any

from course_lib.exercises import Chapter, Exercise, plain, run_cases


def parameters(length: int, layers: int, width: int, input_dim: int, hidden_dim: int) -> tuple[int, int]:
    """How many numbers are trained, and how many are deployed."""
    row = 2 * layers * width
    embedding = length * input_dim
    mlp = input_dim * hidden_dim + hidden_dim + hidden_dim * row + row
    return embedding + mlp, length * row


def _check_parameters(answer: Any) -> str | None:
    return run_cases(
        plain(answer),
        [
            (
                (10, 12, 768, 10, 10),
                [202_962, 184_320],
                "a row has a key and a value of each layer, 2·12·768 numbers; trained are an embedding of 10 × 10 and two layers with biases",
            ),
            (
                (20, 36, 2816, 64, 64),
                [13_184_320, 4_055_040],
                "the published run: 20 rows of 2·36·2816 numbers; the MLP has 64·64 + 64 and 64·202 752 + 202 752",
            ),
            ((1, 1, 1, 1, 1), [7, 2], "1 for the embedding, 1 + 1 for the first layer, 2 + 2 for the second"),
        ],
    )


def example(prompt: list[int], target: list[int], end: int) -> tuple[list[int], list[int]]:
    """What the model reads, and at each place what it is to predict: -100 where nothing is learned."""
    ids = [*prompt, *target, end]
    return ids[:-1], [-100] * (len(prompt) - 1) + ids[len(prompt) :]


def _check_example(answer: Any) -> str | None:
    return run_cases(
        plain(answer),
        [
            (
                ([5, 6, 7], [8, 9], 2),
                [[5, 6, 7, 8, 9], [-100, -100, 8, 9, 2]],
                "at 7 the first word of the target is predicted, at 9 the end; what the prompt predicts of itself is not learned",
            ),
            (([5], [8], 2), [[5, 8], [8, 2]], "a prompt of one token: its place already predicts the target"),
            (
                ([5, 6], [8, 9, 10, 11], 0),
                [[5, 6, 8, 9, 10, 11], [-100, 8, 9, 10, 11, 0]],
                "both lists have the same length, and the last label is the end",
            ),
        ],
    )


def slots(prefix: int, tokens: int, longest_prefix: int, longest_tokens: int) -> tuple[list[int], list[int]]:
    """A row of a batch: its attention mask, and the positions of its tokens."""
    mask = [0] * (longest_prefix - prefix) + [1] * prefix + [0] * (longest_tokens - tokens) + [1] * tokens
    return mask, [prefix + place for place in range(tokens)]


def _check_slots(answer: Any) -> str | None:
    return run_cases(
        plain(answer),
        [
            ((2, 3, 2, 3), [[1, 1, 1, 1, 1], [2, 3, 4]], "nothing to pad; the tokens stand behind the prefix"),
            (
                (2, 3, 4, 5),
                [[0, 0, 1, 1, 0, 0, 1, 1, 1], [2, 3, 4]],
                "prefix and text are each padded on the left; padding takes no position",
            ),
            (
                (0, 2, 3, 4),
                [[0, 0, 0, 0, 0, 1, 1], [0, 1]],
                "a row without a prefix has the columns of the others' prefixes, and sees none of them",
            ),
        ],
    )


CHAPTER = Chapter(
    Exercise(
        "write a function parameters(length, layers, width, input_dim, hidden_dim): how many numbers are trained, and how many deployed",
        _check_parameters,
        (
            "One position of the prefix is a key and a value in each layer, each of the model's width. That is a row; `length` rows are deployed.",
            "Trained are the embedding (length × input_dim) and two linear layers with biases: input_dim → hidden_dim → a row.",
        ),
        parameters,
        "The MLP is a scaffold: it steadies training and stays behind. The base of 3.6 billion numbers is in neither count.",
    ),
    Exercise(
        "write a function example(prompt, target, end): what the model reads, and the labels, with -100 where nothing is learned",
        _check_example,
        (
            "The whole text is prompt + target + [end]. The model reads all but the last; the label at a place is the token after it.",
            "Labels are learned from the last token of the prompt on: before it stand len(prompt) - 1 times -100.",
        ),
        example,
        "One end of text, once. A tokenizer that adds its own would double it, as the published training script does.",
    ),
    Exercise(
        "write a function slots(prefix, tokens, longest_prefix, longest_tokens): a row's attention mask in a batch, and its tokens' positions",
        _check_slots,
        (
            "The columns are first those of the longest prefix, then those of the longest text; both parts are padded on the left with 0.",
            "Positions count what the row really has: the first token stands at `prefix`, however wide the batch is.",
        ),
        slots,
        "That is how a server answers requests with different tasks in one batch: each row sees its own prefix only.",
    ),
)
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution
